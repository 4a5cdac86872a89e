"""Plays a scenario: who sends what, and when somebody joins, restarts or is gone.

Everything is drawn from a stream of its own, so that what the network does wrong does not change the workload. It must
not reach past `Simulation` to machines or network, and checks nothing.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from functools import partial
from math import log1p
from random import Random
from typing import Final

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.scenario import START_NS, Churn, Scenario
from reliable_channel.errors import ChannelFullError
from reliable_channel.types import MS, Nanoseconds

WARM_UP_ROUNDS: Final = 20
"""Tries, at most."""

WARM_UP_ROUND_MS: Final = 3_000.0
"""Time for each: longer than a channel is new after the first message it has received."""

SHORTEST_PAYLOAD: Final = 8
"""Bytes; with fewer, payloads would not be all different."""

SHORTEST_WAIT_MS: Final = 1.0
"""Before a send that could not be made is tried again, also where sends are no time apart: time has to pass."""

LONGEST_RETRY_MS: Final = 3_000.0
"""After a send, its retries come within this time, or when its sender is up again."""


def play(scenario: Scenario, *, trace: list[bytes] | None = None) -> Simulation:
    """Play a scenario to its end and return the simulation; nothing is checked."""
    simulation = Simulation(scenario, trace=trace)
    Workload(simulation).play()
    return simulation


class Workload:
    """What a scenario lets a group do.

    Args:
        simulation: The group, not started yet.

    Attributes:
        began_ns: When the warm-up was over and the scenario's messages began.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.scenario = simulation.scenario
        self.draws = simulation.stream("workload")
        self.repeats = simulation.stream("repeats")
        self.retries = simulation.stream("retries")
        self.sent: dict[int, list[bytes]] = {}
        self.began_ns: Nanoseconds = START_NS
        self.wait_ms = max(self.scenario.interval_ms, SHORTEST_WAIT_MS)

    def play(self) -> None:
        """Run the scenario to its end."""
        simulation, scenario = self.simulation, self.scenario
        late = {join.participant: join.at_ms for join in scenario.joins}
        simulation.start(*(index for index in range(scenario.participants) if index not in late))
        if scenario.warm_up:
            simulation.network.began_ns = None
            self.warm_up()
        self.began_ns = simulation.network.began_ns = simulation.now
        for index, at_ms in late.items():
            simulation.after(at_ms, partial(simulation.start, index))
        for restart in scenario.restarts:
            end = simulation.tear if restart.torn else simulation.crash
            revive = partial(self._revive, restart.participant)
            simulation.after(restart.at_ms, partial(end, restart.participant))
            simulation.after(restart.at_ms + restart.down_ms, revive)
        if scenario.churn is not None:
            self.churn(scenario.churn, scenario.messages * scenario.interval_ms)
        for crash in scenario.crashes:
            simulation.after(crash.at_ms, partial(simulation.arm, crash))
        for number in range(scenario.messages):
            when = (number + self.draws.random()) * scenario.interval_ms
            simulation.after(when, partial(self._send_something, number))
        simulation.run(scenario.messages * scenario.interval_ms)
        for cut in scenario.partitions:
            simulation.run(max(0.0, cut.until_ms - (simulation.now - self.began_ns) / MS))
        simulation.settle()

    def warm_up(self) -> None:
        """Let senders send until all who are there have heard others for a while.

        What is sent from then on is owed to all of these.
        """
        simulation, senders = self.simulation, self.scenario.senders
        present = [who for who in simulation.participants if who.machine is not None]
        machines = [simulation.machine(who.index) for who in present]
        # Two at least: a single one would hear nobody.
        sending = present if senders is None else present[: max(2, senders)]
        for number in range(WARM_UP_ROUNDS):
            for who in sending:
                simulation.send(who.index, b"warm-up %d of %d" % (number, who.index))
            simulation.run(WARM_UP_ROUND_MS)
            if not any(machine.gaps.is_settling() for machine in machines):
                break
        for who in present:
            who.journal.joined_ns = simulation.now

    def churn(self, churn: Churn, duration_ms: float) -> None:
        """Let everybody go down and come back for a while; whoever is down at its end comes back then."""
        simulation = self.simulation
        end_ns = simulation.now + int(duration_ms * MS)
        for who in simulation.participants:
            draws = simulation.stream(f"churn/{who.index}")
            self._up(who.index, churn, draws, end_ns)
        simulation.after(duration_ms, self.bring_back)

    def _up(self, index: int, churn: Churn, draws: Random, end_ns: Nanoseconds) -> None:
        """Let a participant come up unless it is, and set the time at which it goes down."""
        simulation = self.simulation
        who = simulation.participants[index]
        if who.machine is None and who.generation:
            simulation.start(index)
        up_ms = -churn.every_ms * log1p(-draws.random())
        if simulation.now + up_ms * MS < end_ns:
            simulation.after(up_ms, partial(self._down, index, churn, draws, end_ns))

    def _down(self, index: int, churn: Churn, draws: Random, end_ns: Nanoseconds) -> None:
        """Let a participant go down unless it is, and set the time at which it comes up."""
        simulation = self.simulation
        if simulation.participants[index].machine is not None:
            simulation.crash(index)
            simulation.counters["churned"] += 1
        down_ms = -churn.down_ms * log1p(-draws.random())
        if simulation.now + down_ms * MS < end_ns:
            simulation.after(down_ms, partial(self._up, index, churn, draws, end_ns))

    def bring_back(self) -> None:
        """Start everybody who has been there and is not."""
        for who in self.simulation.participants:
            if who.machine is None and who.generation:
                self.simulation.start(who.index)

    def _revive(self, index: int) -> None:
        if self.simulation.participants[index].machine is not None:
            self.simulation.crash(index)
        self.simulation.start(index)

    def _send_something(self, number: int) -> None:
        """Send the payload with this number from somebody who is there; later where there is no room."""
        simulation, scenario, draws = self.simulation, self.scenario, self.draws
        low, high = scenario.payload_bytes
        choice, size = draws.random(), draws.randint(low, high)
        ephemeral = draws.random() < scenario.ephemeral
        payload = (b"%d:" % number + draws.randbytes(size))[: max(size, SHORTEST_PAYLOAD)]
        senders = simulation.participants[: scenario.senders]
        present = [item.index for item in senders if item.machine is not None]
        if not present:
            simulation.after(self.wait_ms, partial(self._send_something, number))
            return
        sender = present[int(choice * len(present))]
        former = self.sent.setdefault(sender, [])
        if former and self.repeats.random() < scenario.repeats:
            payload = self.repeats.choice(former)
        key = f"send {number}" if scenario.retries else None
        try:
            simulation.send(sender, payload, ephemeral=ephemeral, key=key)
        except ChannelFullError:
            simulation.counters["sends_put_off"] += 1
            simulation.after(self.wait_ms, partial(self._send_something, number))
        else:
            former.append(payload)
            for _ in range(scenario.retries):
                again = partial(self._send_again, sender, payload, ephemeral, key)
                simulation.after(self.retries.uniform(0, LONGEST_RETRY_MS), again)

    def _send_again(self, sender: int, payload: bytes, ephemeral: bool, key: str | None) -> None:
        """Send a payload again under its key, as who was not told that it is stored; later where its sender is down."""
        simulation = self.simulation
        try:
            if simulation.participants[sender].machine is not None:
                simulation.send(sender, payload, ephemeral=ephemeral, key=key)
                return
        except ChannelFullError:
            simulation.counters["sends_put_off"] += 1
        again = partial(self._send_again, sender, payload, ephemeral, key)
        simulation.after(self.wait_ms, again)
