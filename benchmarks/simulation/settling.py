"""When a simulation is over: nothing is under way, no channel has anything open, and everybody has everything.

It is asked again and again while time passes, so it looks first at what was open the last time, and at deliveries only
when a journal has changed. It must not let time pass, nor change what it looks at.

Spec: none of its own; ``invariants`` for what is owed.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.simulation.invariants import delivery_problems, quiet_problems
from benchmarks.simulation.participant import Participant
from benchmarks.simulation.schedule import Schedule


class Settling:
    """What is left to do.

    Args:
        schedule: Knows what is under way.
        participants: All of them.
        excused: As for ``delivery_problems``.
    """

    def __init__(
        self, schedule: Schedule, participants: Sequence[Participant], *, excused: bool
    ) -> None:
        self.schedule = schedule
        self.participants = participants
        self.excused = excused
        self.restless = list(participants)
        """Whoever had something open when last looked at comes first."""
        self.looked_at: tuple[tuple[int, int, bool], ...] = ()
        """How long the journals were, and whose channel was up, when deliveries were last looked at."""
        self.lacking = False
        """Something was not delivered then."""

    def is_over(self) -> bool:
        """Tell whether nothing is left to do."""
        return not self.schedule.under_way and self.is_quiet() and not self.is_lacking()

    def is_quiet(self) -> bool:
        """Tell whether no channel that is up has anything open."""
        for place, who in enumerate(self.restless):
            if who.machine is not None and quiet_problems([who.machine.status()]):
                self.restless.insert(0, self.restless.pop(place))
                return False
        return True

    def is_lacking(self) -> bool:
        """Tell whether deliveries are not what they must be."""
        journals = [who.journal for who in self.participants]
        looked_at = tuple((len(item.steps), len(item.events), item.is_live) for item in journals)
        if looked_at != self.looked_at:
            self.looked_at = looked_at
            self.lacking = bool(delivery_problems(journals, excused=self.excused))
        return self.lacking
