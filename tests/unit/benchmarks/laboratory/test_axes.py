"""Axes and series are found in labels, whatever the grid is called."""

from __future__ import annotations

import pytest

from benchmarks.laboratory.axes import (
    GROUP,
    LOSS,
    PARITY,
    Series,
    axes_of,
    label_text,
    percent,
    series_along,
    split,
)
from benchmarks.laboratory.cell import Cell, Label
from benchmarks.simulation.scenario import Bursts
from messaging_adapter.faults import LinkFaults
from tests.support.laboratory_rows import Place, cell_of


def place(**labels: Label) -> Place:
    """Return a cell; ``__`` in a name stands for a dot."""
    named = tuple((name.replace("__", "."), value) for name, value in labels.items())
    return Place("-".join(str(value) for value in labels.values()), named)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("faults.loss", 0.05, "loss 5 %"),
        ("bursts.burst_ms", 500.0, "bursts of 0.5 s"),
        ("bursts.some", True, "losses in bursts"),
        ("segmentation.parity_rate", 0.25, "parity 25 %"),
        ("segmentation.parity_rate", 0, "no parity"),
        ("store.enabled", False, "no store"),
        ("store.enabled", True, "store"),
        ("setting", "slow link", "slow link"),
        ("sds.causal_history_size", 4, "causal history size 4"),
        ("rate_limit.epoch_period_sec", 60, "epoch 60 s"),
        ("channel", "<b>", "channel <b>"),
        ("theory", "1b", "form 1b"),
    ],
)
def test_labels_have_words(name: str, value: Label, text: str) -> None:
    assert label_text(name, value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.05, "5"), (0.99917, "99.9"), (12.0, "1,200"), (1.0, "100"), (0, "0")]
)
def test_shares_are_in_percent(share: float, text: str) -> None:
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"


def test_axes_are_what_varies_in_numbers() -> None:
    cells = [
        place(
            faults__loss=loss,
            participants=2,
            store__enabled=on,
            sds__bloom_capacity=bloom,
            name="x",
        )
        for loss in (0.1, 0.2)
        for on in (True, False)
        for bloom in (10, 1_000)
    ]
    axes = axes_of(cells)
    assert [axis.name for axis in axes] == ["loss", "sds.bloom_capacity"]
    assert axes[1].is_log


def test_what_a_check_is_told_is_no_axis() -> None:
    assert axes_of([place(theory=1, receivers=2), place(theory=2, receivers=3)]) == []


def test_a_series_differs_along_its_axis_alone() -> None:
    cells = [place(faults__loss=p, participants=n) for n in (2, 5) for p in (0.3, 0.1)]
    found = series_along([*cells, place(faults__loss=0.9, participants=7)], LOSS)
    assert [one.name for one in found] == ["participants 2", "participants 5"]
    assert [[x for x, _ in one.points] for one in found] == [[0.1, 0.3]] * 2
    assert found[0].points[0][1] is cells[1]
    assert [one.name for one in series_along(cells, GROUP)] == [
        "loss 30\N{NO-BREAK SPACE}%",
        "loss 10\N{NO-BREAK SPACE}%",
    ]


def test_one_series_needs_no_name_and_none_no_series() -> None:
    assert [one.name for one in series_along([place(loss=0.1), place(loss=0.2)], LOSS)] == [""]
    assert series_along([place(loss=0.1), place(participants=2)], LOSS) == []


def test_independent_losses_are_named_beside_bursts() -> None:
    cells = [place(faults__loss=p) for p in (0.1, 0.2)]
    cells += [place(bursts__loss=p, bursts__burst_ms=300.0) for p in (0.1, 0.2)]
    assert [one.name for one in series_along(cells, LOSS)] == [
        "independent losses",
        "bursts of 0.3\N{NO-BREAK SPACE}s",
    ]


def kinds_of_loss() -> list[Cell]:
    """Return cells as the grid of parity has them: how long bursts are is in no label."""

    def cell(name: str, loss: float, parity: float, bursts: Bursts | None) -> Cell:
        labels: dict[str, Label] = {"segmentation.parity_rate": parity, name: loss}
        faults = LinkFaults(loss=loss)
        return cell_of(f"{name} {loss} {parity} {bursts}", labels, bursts=bursts, faults=faults)

    kinds = [("faults.loss", None), ("bursts.loss", 500.0), ("bursts.loss", 2_000.0)]
    return [
        cell(name, p, parity, None if length is None else Bursts(loss=p, burst_ms=length))
        for name, length in kinds
        for parity in (0, 0.5)
        for p in (0.1, 0.2, 0.4)
    ]


def test_bursts_that_only_scenarios_have_are_told_apart() -> None:
    cells = kinds_of_loss()
    along_loss = series_along(cells, LOSS)
    assert sum(len(one.points) for one in along_loss) == len(cells)
    assert [one.name.replace("\N{NO-BREAK SPACE}", " ") for one in along_loss] == [
        "no parity, independent losses",
        "parity 50 %, independent losses",
        "no parity, bursts of 0.5 s",
        "parity 50 %, bursts of 0.5 s",
        "no parity, bursts of 2 s",
        "parity 50 %, bursts of 2 s",
    ]
    maps = series_along(cells, LOSS, PARITY)
    assert [len(one.points) for one in maps] == [6, 6, 6]
    panels = split(series_along(cells, PARITY), 6)
    titles = [
        "independent losses",
        "bursts of 0.5\N{NO-BREAK SPACE}s",
        "bursts of 2\N{NO-BREAK SPACE}s",
    ]
    assert [title for title, _ in panels] == titles
    assert [len(group) for _, group in panels] == [3, 3, 3]
    assert [axis.name for axis in axes_of(cells)] == ["loss", "parity"]


def test_bursts_are_told_apart_where_nothing_says_how_long_they_are() -> None:
    cells = [place(faults__loss=p) for p in (0.1, 0.2)] + [
        place(bursts__loss=p) for p in (0.1, 0.2)
    ]
    assert [one.name for one in series_along(cells, LOSS)] == [
        "independent losses",
        "losses in bursts",
    ]


def test_groups_that_only_scenarios_have_are_told_apart() -> None:
    cells = [
        cell_of(f"{n} {p}", {"faults.loss": p}, participants=n) for n in (2, 10) for p in (0.1, 0.2)
    ]
    found = series_along(cells, LOSS)
    assert [one.name for one in found] == ["participants 2", "participants 10"]


def test_two_axes_make_one_series_of_a_plane() -> None:
    cells = [place(loss=p, parity=m) for p in (0.1, 0.2) for m in (0, 0.5)]
    (found,) = series_along(cells, LOSS, PARITY)
    assert [cell for _, cell in found.points] == cells


def test_too_many_series_are_split_with_losses_of_both_kinds_together() -> None:
    losses = (0.02, 0.05, 0.1, 0.2, 0.3)
    cells = [place(faults__loss=p, parity=m) for p in losses for m in (0, 1)]
    cells += [place(bursts__loss=p, bursts__burst_ms=9, parity=m) for p in losses for m in (0, 1)]
    panels = split(series_along(cells, PARITY), 6)
    assert [title for title, _ in panels] == [
        "independent losses",
        "bursts of 0.009\N{NO-BREAK SPACE}s",
    ]
    assert [len(group) for _, group in panels] == [5, 5]
    assert panels[1][1][0].name.startswith("loss 2")


def test_no_group_is_larger_than_asked_for() -> None:
    losses = (0.1, 0.2, 0.3, 0.4, 0.5)
    series = [Series("", ((name, p),), ()) for name in ("loss", "faults.loss") for p in losses]
    assert [len(group) for _, group in split(series, 6)] == [6, 4]


def test_few_series_stay_together() -> None:
    series = [Series(str(number), (), ()) for number in range(6)]
    assert split(series, 6) == [("", series)]
