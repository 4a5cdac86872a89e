"""Which figures a grid gets follows from what varies in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from benchmarks.laboratory import figures as module
from benchmarks.laboratory.axes import Shown
from benchmarks.laboratory.cell import Label
from benchmarks.laboratory.figures import (
    MOST_ROWS,
    Picture,
    delivered,
    demand,
    figures,
    not_delivered,
    slowest_seconds,
    transmissions,
)
from benchmarks.laboratory.measures import Measures
from benchmarks.laboratory.results import OTHER, REPAIR, STORE
from reliable_channel.config import RateLimitConfig
from tests.support.laboratory_rows import Place, cell_of, measures_of

LOSSES = (0.02, 0.05, 0.1, 0.2)
FILL = re.compile(r"fill: (#[0-9a-f]{6})")
DARKEST = "#093a70"


def grid(*labels: Mapping[str, Label]) -> list[Place]:
    return [Place(f"cell {n}", tuple(entry.items())) for n, entry in enumerate(labels)]


def drawn(
    cells: Sequence[Shown], measures: Mapping[str, Measures] | None = None
) -> dict[str, Picture]:
    found = measures or {
        cell.key: measures_of(cell.key, delivered=990, channels=40) for cell in cells
    }
    pictures = figures(cells, found)
    names = [picture.name for picture in pictures]
    assert len(set(names)) == len(names)
    return dict(zip(names, pictures, strict=True))


def test_points_have_intervals_and_zero_failures_are_bounds() -> None:
    some = not_delivered(measures_of("a", delivered=990), 0.1)
    none = not_delivered(measures_of("a"), 0.1)
    made = delivered(measures_of("a", delivered=990), 0.1)
    assert some is not None
    assert none is not None
    assert made is not None
    assert some.y == pytest.approx(0.01)
    assert some.low < some.y < some.high
    assert not some.is_bound
    assert none.is_bound
    assert 0 < none.y < 0.001
    assert made.low < made.y < made.high
    for value in (not_delivered, delivered, slowest_seconds, transmissions):
        assert value(Measures.empty("a"), 0.1) is None


def test_loss_alone() -> None:
    found = drawn(grid({"faults.loss": 0.1}, {"faults.loss": 0.2}))
    assert {"delivery-loss-0", "residual-loss-0", "tradeoff-0", "latency-0"} <= set(found)
    assert not any(name.startswith(("heat", "queue", "cost")) for name in found)
    assert found["delivery-loss-0"].title == "Delivery against the loss of copies"
    assert (
        "n = 40 channels a cell, 2 cells, 80,000 deliveries owed"
        in found["delivery-loss-0"].caption
    )


def test_parity_and_loss_independent_and_in_bursts() -> None:
    plain = [{"faults.loss": p, "parity": m} for p in (0.1, 0.2) for m in (0, 1)]
    bursts = [
        {"bursts.loss": p, "bursts.burst_ms": 500, "parity": m} for p in (0.1, 0.2) for m in (0, 1)
    ]
    cells = grid(*plain, *bursts)
    made = [990] * 4 + [900] * 4
    found = drawn(
        cells,
        {
            cell.key: measures_of(cell.key, delivered=number, channels=40)
            for cell, number in zip(cells, made, strict=True)
        },
    )
    titles = [picture.title for name, picture in found.items() if name.startswith("heat")]
    assert titles == [
        "Deliveries not made by loss and parity, independent losses",
        "Deliveries not made by loss and parity, bursts of 0.5\N{NO-BREAK SPACE}s",
        "Retransmissions by loss and parity, independent losses",
        "Retransmissions by loss and parity, bursts of 0.5\N{NO-BREAK SPACE}s",
    ]
    assert {"delivery-loss-0", "residual-parity-0", "cost-parity-0", "slow-parity-0"} <= set(found)
    few, many = (set(FILL.findall(found[f"heat-residual-{n}"].svg)) for n in (0, 1))
    assert DARKEST in many
    assert DARKEST not in few, "the colours are those of the other map"


def test_heat_maps_begin_a_row_of_two_columns() -> None:
    names = list(drawn(grid(*({"loss": p, "parity": m} for p in (0.1, 0.2) for m in (0, 1)))))
    first = names.index("heat-residual-0")
    assert first % 2 == 0
    assert names[first + 1] == "heat-again-0"


def test_figures_of_one_kind_follow_each_other() -> None:
    cells = grid(
        *({"faults.loss": p, "parity": m} for p in LOSSES for m in (0, 1)),
        *({"bursts.loss": p, "bursts.burst_ms": 9, "parity": m} for p in LOSSES for m in (0, 1)),
    )
    names = [name for name in drawn(cells) if "-parity-" in name]
    kinds = ("residual", "cost", "slow")
    assert names == [f"{kind}-parity-{number}" for kind in kinds for number in (0, 1)]


def test_groups_have_delivery_and_cost() -> None:
    found = drawn(grid({"participants": 2}, {"participants": 50}))
    assert {"delivery-group-0", "residual-group-0", "cost-group-0", "slow-group-0"} <= set(found)


def test_any_other_number_is_drawn_too() -> None:
    found = drawn(grid({"sds.bloom_capacity": 10}, {"sds.bloom_capacity": 1_000}))
    assert found["residual-sds-bloom-capacity-0"].title == "Residual loss against bloom capacity"
    assert "delivery-by-cell" not in found


def test_closed_forms_are_drawn_and_named_where_there_are_some() -> None:
    cells = [
        cell_of(str(n), {"sds.max_retransmissions": n, "faults.loss": p})
        for n in (1, 3)
        for p in (0.1, 0.3)
    ]
    with_form = drawn(cells)["delivery-loss-0"]
    without = drawn(grid({"faults.loss": 0.1}, {"faults.loss": 0.3}))["delivery-loss-0"]
    assert "closed form" in with_form.caption
    assert "stroke-dasharray: 1.1" in with_form.svg
    assert "closed form" not in without.caption
    assert "stroke-dasharray: 1.1" not in without.svg


def test_what_brought_deliveries_is_told_apart() -> None:
    latency = {
        0: {50: 900},
        1: {5_050: 50},
        7: {40_000: 5},
        STORE: {700: 20},
        REPAIR: {40_000: 10},
        OTHER: {9: 1},
    }
    (cell,) = grid({"loss": 0.1})
    found = drawn([cell], {cell.key: measures_of(cell.key, latency=latency)})
    svg = found["latency-0"].svg
    for text in ("first transmission", "second", "later ones", "repair", "store", "other"):
        assert f">{text}<" in svg
    assert ">third<" not in svg
    assert "8.72" in found["latency-0"].caption, "86 of 986"


def test_waits_are_drawn_where_somebody_waited() -> None:
    def limited(budget: int) -> Shown:
        limit = RateLimitConfig(enabled=True, epoch_period_sec=60, messages_per_epoch=budget)
        return cell_of(f"b{budget}", {"rate_limit.messages_per_epoch": budget}, rate_limit=limit)

    cells = [limited(budget) for budget in (10, 20, 40)]
    measures = {
        cell.key: measures_of(cell.key, channels=4, queue={10: 9, 60_000: 1}) for cell in cells
    }
    found = drawn(cells, measures)
    assert {"queue-0", "queue-demand"} <= set(found)
    assert demand(cells[0], measures[cells[0].key]) == pytest.approx(4 * 30 / 10)
    for one in measures.values():
        one.queue = {10: 9}
    assert "queue-0" not in drawn(cells, measures)
    assert demand(Place("a"), measures_of("a")) is None
    assert demand(cell_of("a"), measures_of("a")) is None


def test_real_traffic_has_a_row_a_channel() -> None:
    cells = grid(*({"channel": f"channel {n}"} for n in range(MOST_ROWS + 5)))
    found = drawn(cells)
    assert set(found) == {"delivery-by-cell", "latency-0", "latency-1", "latency-2", "latency-3"}
    assert f"the {MOST_ROWS} lowest of {MOST_ROWS + 5}" in found["delivery-by-cell"].caption


def test_a_large_grid_says_that_it_shows_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ALIKE", 2)
    cells = grid(
        *(
            {"loss": p, "a": f"a{x}", "b": f"b{y}"}
            for p in (0.1, 0.2)
            for x in range(8)
            for y in range(7)
        )
    )
    found = drawn(cells, {cell.key: measures_of(cell.key, channels=2) for cell in cells})
    assert sum(name.startswith("delivery-loss") for name in found) == 2
    assert "the first 2 of 56" in found["delivery-loss-0"].caption


def test_cells_without_results_are_left_out() -> None:
    cells = grid({"loss": 0.1}, {"loss": 0.2}, {"loss": 0.3})
    measures = {cell.key: measures_of(cell.key, channels=3) for cell in cells[:2]}
    measures[cells[2].key] = Measures.empty(cells[2].key)
    assert "2 cells" in drawn(cells, measures)["delivery-loss-0"].caption
    assert figures(cells, {}) == []
    assert figures([], {}) == []


def test_rows_of_which_nothing_was_owed_are_no_figure() -> None:
    (cell,) = grid({"channel": "quiet"})
    empty = Measures.empty(cell.key)
    empty.channels = 3
    assert figures([cell], {cell.key: empty}) == []
