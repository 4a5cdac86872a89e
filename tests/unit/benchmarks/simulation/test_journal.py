"""A journal tells own messages from those of others."""

from __future__ import annotations

from benchmarks.simulation.journal import Journal, Step


def test_steps_with_a_request_are_its_own_and_the_others_were_delivered() -> None:
    own = Step("m1", "p0", b"1", 1, request_id="r1")
    other = Step("m2", "p1", b"2", 2)
    journal = Journal("p0", steps=[own, other])
    assert journal.sent() == [own]
    assert journal.delivered() == [other]
