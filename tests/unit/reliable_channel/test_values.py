"""Values behave as frozen dataclasses do, but for the guard at run time."""

from __future__ import annotations

from dataclasses import fields, replace

from reliable_channel import values


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 0


def test_values_compare_and_hash_by_their_fields() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert Point(x=1) != Point(x=2)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2


def test_values_are_dataclasses_with_slots() -> None:
    assert [item.name for item in fields(Point)] == ["x", "y"]
    assert replace(Point(x=1), y=5) == Point(x=1, y=5)
    assert not hasattr(Point(x=1), "__dict__")
