"""The programs for people and machines: the only place that wires library, nodes and stores together.

It must not be imported by any of them, and it uses only what they export.
"""

from __future__ import annotations

__all__ = ()
