"""Which build of the core this is: sources, or C extensions made of them.

Both do the same; what differs is written in docs/adr/0016-a-core-that-can-be-compiled.md. It must not decide anything
in the protocol.

Spec: none.
"""

from __future__ import annotations

from typing import Final

IS_COMPILED: Final = __file__.endswith((".so", ".pyd"))
"""Whether the modules of the core are C extensions, made by mypyc when the package was built."""
