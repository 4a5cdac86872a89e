"""Measures of a grid against the closed forms, with pass or fail.

A cell takes part by its label ``theory``, the number of a form; what the form needs is read from the cell's scenario.
Every check is a two-sided test of one number, Holm-corrected over the grid, with an interval and the smallest deviation
that so many channels would show: a check that passes says how near the form is, not that it is exact. It must not play
channels, nor know what becomes of a check.

Spec: none of its own; `theory` for the forms, `intervals` for the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.laboratory import theory
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.grids import THEORY, Grid, misfit
from benchmarks.laboratory.intervals import (
    detectable,
    effective_trials,
    holm,
    mean_p_value,
    proportion_p_value,
    quantile,
    ratio_interval,
    ratio_p_value,
    ratio_variance,
    wilson,
)
from benchmarks.laboratory.measures import Measures, three_digits

LEVEL: Final = 0.01
"""A check fails whose adjusted p-value is below this: one false alarm in a hundred runs of a whole grid."""

NO_FORM: Final = "–"
"""Of a check that no closed form is behind."""

PROMISES: Final = {
    "duplicated": "messages delivered twice",
    "disordered": "messages delivered before what they depend on",
}
"""Columns that must be 0 where channels are not new and nothing is reported lost."""

MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number against its expectation."""

    form: str
    """Of the closed form, as its function in `theory` says."""
    cell: str
    """Name of the cell."""
    statement: str
    """What should be so, as a short sentence."""
    expected: float
    measured: float
    low: float
    """Of the 95 % interval of the measured."""
    high: float
    error: float
    """Standard error of the measured."""
    p_value: float
    """Of a deviation as large or larger by chance, two-sided."""
    adjusted: float = 1.0
    """The same after Holm's correction over all checks of the grid."""
    passed: bool = True
    detects: float = 0.0
    """Deviation that these channels show nine times in ten, at the strictest level of the correction."""

    @property
    def difference(self) -> float:
        """Measured minus expected."""
        return self.measured - self.expected


def checks(grid: Grid, measures: Mapping[str, Measures], *, level: float = LEVEL) -> list[Check]:
    """Return the checks of a grid, in the order of its cells, and then what no cell may have.

    Args:
        grid: Those of its cells with a label ``theory`` are held against its form.
        measures: By key of the cell; a cell without any fails.
        level: Of all checks together.
    """
    found = [
        check
        for cell in grid.cells
        if cell.label(THEORY) is not None
        for check in checks_of(cell, measures.get(cell.key))
    ]
    adjusted = holm([check.p_value for check in found])
    corrected = [
        replace(
            check,
            adjusted=value,
            passed=value >= level,
            detects=detectable(check.error, level / len(found)),
        )
        for check, value in zip(found, adjusted, strict=True)
    ]
    played = [(cell, measures[cell.key]) for cell in grid.cells if cell.key in measures]
    return corrected + [check for pair in played for check in broken_promises(*pair)]


def broken_promises(cell: Cell, measures: Measures) -> Iterator[Check]:
    """Give a check that fails where messages came twice or out of order and nothing explains it.

    Something may where a channel was new, or where something was reported lost. Chance has no part in it, so it is
    not corrected for the number of checks.
    """
    if not cell.scenario.warm_up or cell.scenario.joins or measures.sums["lost"]:
        return
    for name, statement in PROMISES.items():
        if found := measures.sums[name]:
            check = exact(cell, NO_FORM, statement, expected=0, measured=found)
            yield replace(check, adjusted=0.0, passed=False)


def checks_of(cell: Cell, measures: Measures | None) -> Iterator[Check]:
    """Give the checks of one cell, each by itself; a form that does not fit it is one that fails."""
    form = str(cell.label(THEORY))
    if problem := misfit(cell):
        yield exact(cell, form, problem, expected=1, measured=0)
        return
    if measures is None or not measures.channels:
        yield exact(cell, form, "channels were measured", expected=1, measured=0)
        return
    yield exact(cell, form, "channels with a problem", expected=0, measured=measures.problems)
    try:
        yield from FORMS[form](Subject(cell, form, measures))
    except (ValueError, ArithmeticError, LookupError) as error:  # the report is made all the same
        statement = f"form {form} fits the cell ({error})"
        yield exact(cell, form, statement, expected=1, measured=0)


def exact(cell: Cell, form: str, statement: str, *, expected: float, measured: float) -> Check:
    """Return a check of what leaves nothing to chance."""
    return Check(
        form=form,
        cell=cell.name,
        statement=statement,
        expected=expected,
        measured=measured,
        low=measured,
        high=measured,
        error=0.0,
        p_value=float(expected == measured),
    )


class Subject:
    """A cell with its measures, and the letters of the forms.

    Args:
        cell: In the degenerate mode.
        form: Its label.
        measures: Of its channels.
    """

    def __init__(self, cell: Cell, form: str, measures: Measures) -> None:
        self.cell, self.form, self.measures = cell, form, measures
        self.scenario = scenario = cell.scenario
        self.loss = scenario.bursts.loss if scenario.bursts else scenario.faults.loss
        self.ack_loss = self.loss if scenario.sync_loss is None else scenario.sync_loss
        self.retransmissions = scenario.sds.max_retransmissions
        self.receivers = scenario.participants - 1
        self.data = -(-scenario.payload_bytes[1] // scenario.segmentation.segment_size_bytes)
        self.parity = 0
        if scenario.segmentation.enable_reed_solomon and self.data > 1:
            rate = scenario.segmentation.parity_rate
            self.parity = min(self.data, math.ceil(round(rate * self.data, 6)))

    @property
    def try_ms(self) -> float:
        """From one transmission of a segment to the next, milliseconds."""
        node = self.scenario.node
        timeout = self.scenario.sds.acknowledgement_timeout_ms
        return node.transmit_ms + node.report_ms + timeout

    @property
    def block(self) -> int:
        """Channels of one receiver each that stand for one group."""
        return int(self.cell.label("receivers") or 1)

    def is_cut(self) -> Check:
        """Check that a payload has as many segments as the form is given."""
        count = self.measures.sums["segments"] / max(1, self.measures.sums["messages"])
        return exact(self.cell, self.form, "data segments", expected=self.data, measured=count)

    def ratio(self, name: str, statement: str, expected: float, *, proportion: bool) -> Check:
        """Check a ratio of sums over channels."""
        sums = self.measures.ratios[name]
        low, high = ratio_interval(sums, proportion=proportion)
        error = math.sqrt(ratio_variance(sums))
        if proportion:
            trials = effective_trials(sums)
            error = math.sqrt(expected * (1 - expected) / trials) if trials else math.inf
        return self.check(
            statement,
            expected,
            sums.value,
            (low, high),
            error,
            ratio_p_value(sums, expected, proportion=proportion),
        )

    def share(self, statement: str, expected: float, found: int, trials: float, all_: int) -> Check:
        """Check a share of what counts for so many independent trials."""
        value = found / all_ if all_ else 0.0
        error = math.sqrt(expected * (1 - expected) / trials) if trials else math.inf
        return self.check(
            statement,
            expected,
            value,
            wilson(min(value * trials, trials), trials),
            error,
            proportion_p_value(value, trials, expected) if trials else 0.0,
        )

    def mean(self, statement: str, expected: float, histogram: Mapping[int, int]) -> Check:
        """Check the mean of independent values."""
        count = sum(histogram.values())
        mean = sum(value * number for value, number in histogram.items()) / max(1, count)
        spread = sum((value - mean) ** 2 * number for value, number in histogram.items())
        variance = spread / (count * (count - 1)) if count > 1 else math.inf
        error = math.sqrt(variance)
        reach = quantile(0.95) * error
        p_value = mean_p_value(mean, expected, variance) if count else 0.0
        return self.check(statement, expected, mean, (mean - reach, mean + reach), error, p_value)

    def check(
        self,
        statement: str,
        expected: float,
        measured: float,
        interval: tuple[float, float],
        error: float,
        p_value: float,
    ) -> Check:
        """Return a check before it is corrected for the number of them."""
        return Check(
            form=self.form,
            cell=self.cell.name,
            statement=statement,
            expected=expected,
            measured=measured,
            low=interval[0],
            high=interval[1],
            error=error,
            p_value=p_value,
        )

    def delivery(self, expected: float) -> Check:
        """Check the delivery ratio."""
        return self.ratio("delivery", "delivery ratio", expected, proportion=True)

    def sends(self, expected: float) -> Check:
        """Check how often a segment is sent."""
        return self.ratio("data_sends", "transmissions a segment", expected, proportion=False)


def to_one(it: Subject) -> Iterator[Check]:
    """Form 1."""
    yield it.delivery(theory.segment_delivery(it.loss, it.retransmissions))


def to_all(it: Subject) -> Iterator[Check]:
    """Form 1b: blocks of channels; at each place of sending, all of a block get the message or not."""
    expected = theory.delivery_to_all(it.loss, it.retransmissions, it.block)
    complete, blocks = it.measures.blocks_complete.get(it.block, (0, 0))
    statement = f"share that all of {it.block} receivers get"
    yield it.share(statement, expected, complete, blocks, blocks)


def of_segments(it: Subject) -> Iterator[Check]:
    """Form 2."""
    yield it.is_cut()
    yield it.delivery(theory.payload_delivery(it.loss, it.retransmissions, it.data))


def sends_to_one(it: Subject) -> Iterator[Check]:
    """Form 3: the mean, and how many messages take the first try alone and how many take all."""
    yield it.sends(theory.expected_sends(it.loss, it.ack_loss, it.retransmissions))
    shares = theory.sends_shares(it.loss, it.ack_loss, it.retransmissions)
    tries, count = it.measures.tries, sum(it.measures.tries.values())
    for number in (1, len(shares)):
        statement = f"share of messages sent {number} times"
        yield it.share(statement, shares[number - 1], tries.get(number, 0), count, count)


def to_group(it: Subject) -> Iterator[Check]:
    """Form 4."""
    letters = (it.loss, it.ack_loss, it.retransmissions, it.receivers)
    yield it.delivery(theory.group_delivery(*letters))
    yield it.sends(theory.group_sends(*letters))


def sends_to_all(it: Subject) -> Iterator[Check]:
    """Form 5: blocks of channels; the most transmissions of a block's messages at one place."""
    expected = theory.sends_until_all(it.loss, it.ack_loss, it.retransmissions, it.block)
    statement = f"transmissions until all of {it.block} have acknowledged"
    yield it.mean(statement, expected, it.measures.blocks.get(it.block, {}))


def with_parity(it: Subject) -> Iterator[Check]:
    """Form 6, ours: what is whole after each round, by the time of its delivery."""
    yield it.is_cut()
    sums = it.measures.ratios["delivery"]
    trials = effective_trials(sums)
    for rounds in range(it.retransmissions + 1):
        until = (rounds + 1) * it.try_ms
        found = sum(
            number
            for by_value in it.measures.latency.values()
            for value, number in by_value.items()
            if value < until
        )
        expected = theory.parity_delivery(it.loss, rounds, it.data, it.parity)
        statement = f"share whole after {rounds} rounds"
        yield it.share(statement, expected, found, trials, sums.denominator)
    expected = theory.parity_delivery(it.loss, it.retransmissions, it.data, it.parity)
    yield it.delivery(expected)


def through_bursts(it: Subject) -> Iterator[Check]:
    """Form 7."""
    bursts = it.scenario.bursts
    assert bursts is not None
    lost = theory.burst_loss_in_time(bursts.loss, bursts.burst_ms, it.retransmissions, it.try_ms)
    yield it.delivery(1.0 - lost)


def through_limiter(it: Subject) -> Iterator[Check]:
    """Form 8, ours: in which epoch the last segment goes, and its mean wait."""
    limit = it.scenario.rate_limit
    yield it.is_cut()
    earliest, latest = theory.limiter_wait(
        it.data, limit.messages_per_epoch, limit.epoch_period_sec
    )
    first, last = int(earliest * MILLISECONDS), math.ceil(latest * MILLISECONDS)
    queue = it.measures.queue
    count, sent = sum(queue.values()), it.measures.sums["messages"]
    inside = sum(number for value, number in queue.items() if three_digits(first) <= value <= last)
    statement = f"waits from {earliest:g} to {latest:g} s, of all"
    yield exact(it.cell, it.form, statement, expected=sent, measured=min(inside, count))
    # Measures keep three digits, so the mean that is expected is that of evenly spread times cut in the same way.
    values = range(first, max(first + 1, last))
    mean = sum(map(three_digits, values)) / len(values)
    yield it.mean("mean wait of the last segment, ms", mean, queue)


def seen(it: Subject) -> Iterator[Check]:
    """Form 9: of the messages, how many are reported lost.

    Neighbours are seen by the same messages, so up to a loss of a half their number varies less than if they were
    independent, as which they are counted.
    """
    loss = theory.segment_loss(it.loss, it.retransmissions)
    size = it.scenario.sds.causal_history_size
    expected = theory.seen_losses(loss, it.scenario.messages, size)
    count = it.measures.sums["messages"]
    statement = "share of messages that are lost and seen to be"
    yield it.share(statement, expected, it.measures.sums["lost"], count, count)


FORMS: Final[dict[str, Callable[[Subject], Iterator[Check]]]] = {
    "1": to_one,
    "1b": to_all,
    "2": of_segments,
    "3": sends_to_one,
    "4": to_group,
    "5": sends_to_all,
    "6": with_parity,
    "7": through_bursts,
    "8": through_limiter,
    "9": seen,
}
"""By the value of the label ``theory``."""
