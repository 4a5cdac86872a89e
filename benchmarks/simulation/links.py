"""What becomes of the copies on their way to one receiver: lost, alone or in bursts, late, twice.

::

    copy ─► lost? ─► twice? ─► delay of each ─► arrivals
            │ independent: faults.loss, or sync_loss for a sync message
            └ in bursts:   good ⇄ bad, a Markov chain in continuous time

What needs a draw that others do not has a stream of its own, so that delays do not change losses, nor losses of syncs
those of messages. It must not know who sent a copy, what is in it, nor when it is carried out.

Spec: none of its own; E. N. Gilbert (1960) and E. O. Elliott (1963) for bursts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log, log1p, sqrt
from random import Random

from benchmarks.simulation.scenario import START_NS, Bursts, Delays, Scenario
from messaging_adapter.faults import MIN_HOLD_MS, LinkFaults
from reliable_channel.types import MS, Nanoseconds


class Link:
    """The way to one receiver.

    Args:
        scenario: What goes wrong on it.
        index: Of the receiver.
        stream: Gives the random stream of a purpose.
    """

    def __init__(self, scenario: Scenario, index: int, stream: Callable[[str], Random]) -> None:
        purpose = f"link/{index}"
        self.draws = stream(purpose)
        self.sync_loss = scenario.sync_loss
        self.sync_draws = self.draws
        if scenario.sync_loss is not None:
            self.sync_draws = stream(f"{purpose}/syncs")
        self.weather: Weather | None = None
        if scenario.bursts is not None:
            self.weather = Weather(scenario.bursts, stream(f"{purpose}/bursts"))
        self.delays: DelayDraws | None = None
        if scenario.delays is not None:
            self.delays = DelayDraws(scenario.delays, stream(f"{purpose}/delays"))
        self.is_plain = not (self.weather or self.delays or scenario.sync_loss is not None)
        self.change(scenario.faults)

    def change(self, faults: LinkFaults) -> None:
        """Let other faults hold from now on."""
        self.faults = faults
        self.lossless = replace(faults, loss=0.0)

    def copies(self, now: Nanoseconds, *, is_sync: bool) -> list[Nanoseconds]:
        """Draw what becomes of the copy of one transmission.

        Args:
            now: Time of the transmission; not before that of an earlier call.
            is_sync: It is a sync message.

        Returns:
            The delay in nanoseconds of each arrival: none when lost, two when duplicated, not sorted.
        """
        if self.is_plain:
            return self.faults.copies(self.draws)
        if self.is_lost(now, is_sync=is_sync):
            return []
        if self.delays is None:
            return self.lossless.copies(self.draws)
        arrivals = 1
        if self.faults.duplicate and self.draws.random() < self.faults.duplicate:
            arrivals = 2
        return [
            int((self.delays.draw() + self._hold_ms(self.delays)) * MS) for _ in range(arrivals)
        ]

    def is_lost(self, now: Nanoseconds, *, is_sync: bool) -> bool:
        """Draw whether a copy is lost."""
        if is_sync and self.sync_loss is not None:
            return self.sync_draws.random() < self.sync_loss
        if self.weather is not None:
            return self.weather.is_lost(now)
        return self.draws.random() < self.faults.loss

    def _hold_ms(self, delays: DelayDraws) -> float:
        """Return how long a copy is held back so that others overtake it, as `LinkFaults` does."""
        if not self.faults.reorder or self.draws.random() >= self.faults.reorder:
            return 0.0
        return (1 + self.draws.random()) * max(MIN_HOLD_MS, delays.ordinary_ms)


class Weather:
    """Whether a link is good or bad just now: two states, left after exponential times.

    The state is drawn when somebody looks, from the chance to be in it so long after the last look; nothing is stepped.

    Args:
        bursts: How bad, for how long.
        draws: Its stream.
    """

    def __init__(self, bursts: Bursts, draws: Random) -> None:
        self.bursts = bursts
        self.draws = draws
        self.share = bursts.bad_share
        # From good to bad at λ, back at μ = 1/burst_ms, and share = λ/(λ+μ): λ+μ = μ/(1 − share).
        leaves_bad = 1 / (bursts.burst_ms * MS)
        self.changes = leaves_bad / (1 - self.share) if self.share < 1 else 0.0
        """λ + μ, a nanosecond."""
        self.is_bad = draws.random() < self.share
        self.seen_ns: Nanoseconds = START_NS

    def look(self, now: Nanoseconds) -> bool:
        """Draw whether it is bad now."""
        if now > self.seen_ns:
            chance = self.share
            chance += (self.is_bad - self.share) * exp(-self.changes * (now - self.seen_ns))
            self.is_bad = self.draws.random() < chance
            self.seen_ns = now
        return self.is_bad

    def is_lost(self, now: Nanoseconds) -> bool:
        """Draw whether a copy sent now is lost."""
        loss = self.bursts.bad_loss if self.look(now) else self.bursts.good_loss
        return self.draws.random() < loss


class DelayDraws:
    """Times under way, of any distribution.

    Args:
        delays: The distribution.
        draws: Its stream.
    """

    def __init__(self, delays: Delays, draws: Random) -> None:
        self.mean_ms, self.spread_ms = delays.mean_ms, delays.spread
        self.draws = draws
        self.draw: Callable[[], float] = getattr(self, f"_{delays.kind}")
        """Draws one, milliseconds."""
        if delays.kind == "lognormal":
            variance = log1p((self.spread_ms / self.mean_ms) ** 2)
            self._sigma = sqrt(variance)
            self._mu = log(self.mean_ms) - variance / 2

    @property
    def ordinary_ms(self) -> float:
        """What few are longer than, milliseconds."""
        return self.mean_ms + self.spread_ms

    def _constant(self) -> float:
        return self.mean_ms

    def _uniform(self) -> float:
        return self.mean_ms + (2 * self.draws.random() - 1) * self.spread_ms

    def _exponential(self) -> float:
        return self.mean_ms - self.spread_ms - self.spread_ms * log1p(-self.draws.random())

    def _lognormal(self) -> float:
        return self.draws.lognormvariate(self._mu, self._sigma)
