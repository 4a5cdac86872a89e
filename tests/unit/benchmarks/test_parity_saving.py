"""Runs are counted for each payload, and compared with the same case without parity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import parity_saving
from benchmarks.parity_saving import HEAD, MESSAGES, Case, Result, Run, measure

CASE = Case(participants=2, loss=0.1, rate=0.25)


def result(case: Case, *retransmissions: int) -> Result:
    runs = [Run(count, 1, 50 * MESSAGES, (1.0, 2.0, 3.0), 0) for count in retransmissions]
    return Result(case, tuple(runs))


def test_without_loss_nothing_goes_out_again_and_all_is_delivered() -> None:
    run = measure(replace(CASE, loss=0.0), seed=1)
    assert (run.retransmissions, run.repairs, run.undelivered) == (0, 0, 0)
    assert len(run.waits_s) == MESSAGES
    assert all(0 < wait < 1 for wait in run.waits_s)
    assert run.transmissions >= MESSAGES * (40 + 10)


def test_a_run_is_the_same_each_time_and_without_parity_another_one() -> None:
    assert measure(CASE, seed=2) == measure(CASE, seed=2)
    plain = measure(replace(CASE, rate=0.0), seed=2)
    assert plain.retransmissions > measure(CASE, seed=2).retransmissions


@pytest.mark.parametrize(
    ("without", "with_parity", "saved"),
    [
        ((50, 50), (5, 15), 0.8),
        ((50,), (50,), 0.0),
        ((5,), (10,), -1.0),
        ((1, 0), (0, 0), None),
    ],
    ids=["fewer", "as many", "more", "too few to say"],
)
def test_what_is_saved_is_a_share_of_what_goes_out_again_without_parity(
    without: tuple[int, ...], with_parity: tuple[int, ...], saved: float | None
) -> None:
    base = result(replace(CASE, rate=0.0), *without)
    assert result(CASE, *with_parity).saved(base) == (
        None if saved is None else pytest.approx(saved)
    )


def test_a_row_says_what_was_measured() -> None:
    found = list(parity_saving.rows([result(replace(CASE, rate=0.0), 50), result(CASE, 5)]))
    assert found == [
        "| 2 | no | 10% | none | 10.00 | – | 0.20 | 50.0 | 2.0 | 2.9 | 0 |",
        "| 2 | no | 10% | 0.25 | 1.00 | 90.0% | 0.20 | 50.0 | 2.0 | 2.9 | 0 |",
    ]
    assert {line.count("|") for line in (*HEAD, *found)} == {12}


def test_all_runs_of_a_case_are_together() -> None:
    cases = [replace(CASE, loss=0.0), replace(CASE, loss=0.0, rate=0.5)]
    found = list(parity_saving.measure_all(cases, seeds=2))
    assert [item.case for item in found] == cases
    assert [len(item.runs) for item in found] == [2, 2]


@pytest.mark.parametrize(
    ("data_count", "loss", "count"),
    [(1, 0.0, 0), (1, 0.1, 1), (1, 0.5, 6), (40, 0.1, 10), (2, 0.01, 1)],
)
def test_parity_is_enough_when_99_of_100_payloads_are_whole(
    data_count: int, loss: float, count: int
) -> None:
    assert parity_saving.parity_needed(data_count, loss) == count


def test_more_parity_than_data_is_no_advice() -> None:
    assert list(parity_saving.needed_rows())[2] == "| 2 | 1: 0.5 | 1: 0.5 | 2: 1 | – | – |"


def test_the_rate_in_the_table_gives_as_many_segments() -> None:
    *_, row = parity_saving.needed_rows()
    for cell in row.split(" | ")[1:]:
        count, rate = cell.strip(" |").split(": ")
        assert -(-round(float(rate) * 1_000_000) * 100 // 1_000_000) == int(count)


def test_the_first_table_compares_every_group_with_and_without() -> None:
    cases = parity_saving.headline()
    assert len(cases) == 12
    for case in cases:
        assert replace(case, rate=0.0) in cases
    assert {case.rate for case in parity_saving.grid()} == {0.0, 0.125, 0.25, 0.5}
