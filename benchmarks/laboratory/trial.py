"""Plays one channel of a cell and counts what came of it.

It must not know who asks for it, Spark or a process of its own, nor keep anything between two trials.

Spec: RELIABLE-CHANNEL-API, Events, for what is counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.results import Trial
from benchmarks.laboratory.seeds import streams
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.invariants import order_problems
from benchmarks.simulation.scenario import START_NS
from benchmarks.simulation.workload import Workload
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.types import MS


def run_trials(cells: list[Cell], root: int, work: Iterable[tuple[int, int]]) -> Iterator[Trial]:
    """Play channels one after the other.

    Args:
        cells: All cells of a run.
        root: The run's seed.
        work: Index of the cell and number of the channel, of each.
    """
    for place, channel in work:
        yield run_trial(cells[place], root, channel)


def run_trial(cell: Cell, root: int, channel: int, *, trace: list[bytes] | None = None) -> Trial:
    """Play one channel to its end.

    What goes wrong in it is in its ``problem``: one channel of millions must not end a run, nor go unseen.

    Args:
        cell: What is played.
        root: The run's seed.
        channel: Which channel of the cell.
        trace: Takes a line for every input and effect.
    """
    began = time.process_time_ns()
    try:
        simulation = Simulation(
            cell.scenario, trace=trace, streams=streams(root, cell.hash, channel)
        )
        Workload(simulation).play()
        trial = count(cell, channel, simulation)
    except Exception as error:  # the row that says so is how to find it and play it again
        trial = Trial(scenario=cell.key, channel=channel)
        trial.problem = f"{type(error).__name__}: {error}"
    trial.seal()
    trial.cpu_us = (time.process_time_ns() - began) // 1000
    return trial


def count(cell: Cell, channel: int, simulation: Simulation) -> Trial:
    """Return what a simulation came to."""
    trial = Trial(scenario=cell.key, channel=channel)
    journals = simulation.journals
    sent = {step.message_id: step for journal in journals for step in journal.sent()}
    owed = {name: step for name, step in sent.items() if not step.ephemeral}
    places = {name: place for place, name in enumerate(owed)}
    segment_of = {item: name for name, step in owed.items() for item in step.segments}
    trial.messages = len(owed)
    trial.owed = len(owed) * (len(journals) - 1)
    trial.segments = sum(len(step.segments) for step in owed.values())
    trial.payload_bytes = sum(len(step.payload) for step in owed.values())
    trial.receivers = [0] * len(owed)
    trial.tries = [0] * len(owed)
    for journal in journals:
        seen: Counter[str] = Counter()
        for step in journal.delivered():
            name = segment_of.get(step.message_id)
            if name is None:
                continue
            seen[name] += 1
            if seen[name] > 1:
                trial.duplicated += 1
                continue
            trial.late += step.late
            trial.receivers[places[name]] += 1
            trial.latency_ms.append((step.time_ns - owed[name].time_ns) // MS)
            trial.round.append(0)
    trial.delivered = sum(trial.receivers)
    trial.complete = sum(found == len(journals) - 1 for found in trial.receivers)
    trial.disordered = len(order_problems(journals))
    starts = {step.request_id: step.time_ns for step in owed.values()}
    for journal, participant in zip(journals, simulation.participants, strict=True):
        for event in journal.events:
            if isinstance(event, MessageLostEvent):
                trial.lost += 1
                continue
            start_ns = starts.get(getattr(event, "request_id", "") or "")
            if start_ns is None:
                continue
            elapsed_ms = (event.time_ns - participant.offset_ns - start_ns) // MS
            match event:
                case MessageDeliveredEvent():
                    trial.confirmed += 1
                    trial.confirm_ms.append(elapsed_ms)
                case MessageSentEvent():
                    trial.queue_ms.append(elapsed_ms)
                case MessageSendErrorEvent():
                    trial.send_errors += 1
                case MessageDeliveryErrorEvent():
                    trial.delivery_errors += 1
    trial.put_off = simulation.counters["sends_put_off"]
    trial.retransmissions = simulation.counted("retransmissions")
    trial.repairs = simulation.counted("repairs_answered")
    trial.transmissions = simulation.transmissions
    trial.copies = simulation.counters["copies_received"]
    trial.fetches = simulation.counters["fetches"]
    trial.virtual_ms = (simulation.now - START_NS) // MS
    return trial
