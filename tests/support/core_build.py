"""Whether the core that the tests meet is compiled, and what can still be done with it then.

A compiled object has no ``__dict__``, cannot be copied, and nobody can put a function in the place of a method.
"""

from __future__ import annotations

import copy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from reliable_channel import core
from reliable_channel.core.build import IS_COMPILED
from reliable_channel.core.machine import ChannelMachine

CORE: Final = Path(core.__file__).parent


def attributes(item: object) -> dict[str, object]:
    """Return the attributes of an object of the core by their names."""
    if not IS_COMPILED:
        return dict(getattr(item, "__dict__", {}))
    names: tuple[str, ...] = getattr(type(item), "__mypyc_attrs__", ())
    return {name: getattr(item, name) for name in names if hasattr(item, name)}


def twin_of(machine: ChannelMachine) -> ChannelMachine | None:
    """Return a copy that goes its own way; None where the core is compiled."""
    return None if IS_COMPILED else copy.deepcopy(machine)


def stale_extensions(folder: Path = CORE) -> list[str]:
    """Return the compiled modules below a folder that are older than their source, or have none any more."""
    suffix = EXTENSION_SUFFIXES[0]
    found = []
    for extension in folder.rglob(f"*{suffix}"):
        source = extension.with_name(extension.name.removesuffix(suffix) + ".py")
        if not source.exists() or source.stat().st_mtime > extension.stat().st_mtime:
            found.append(source.relative_to(folder).as_posix())
    return sorted(found)
