"""Value objects that are made several times for every message: rows, wire messages.

Nothing here knows what they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(*, frozen, **options):
        """Return the decorator of a class of values, as the standard one does; frozen for type checkers only.

        A dataclass that is frozen at run time sets each field by a call of ``object.__setattr__``: making one takes
        more than twice as long. Values are hashed by their fields all the same, so nobody may change one.

        Args:
            frozen: Must be true.
            options: As for the standard one.
        """
        assert frozen
        return dataclasses.dataclass(unsafe_hash=True, **options)
