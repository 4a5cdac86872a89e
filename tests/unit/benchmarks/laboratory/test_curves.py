"""Closed forms beside measurements: the right one for the settings, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.laboratory import theory
from benchmarks.laboratory.axes import GROUP, LOSS, PARITY
from benchmarks.laboratory.curves import (
    ABOUT_BURSTS,
    ABOUT_GROUPS,
    ABOUT_PARITY,
    data_segments,
    drawn,
    parity_segments,
    residual_form,
)
from benchmarks.simulation.scenario import Bursts
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SegmentationConfig
from tests.support.laboratory_rows import SHORT, Place, cell_of

WITH_PARITY = SegmentationConfig(segment_size_bytes=256, enable_reed_solomon=True, parity_rate=0.5)
ONE = (64, 64)


@pytest.mark.parametrize(
    ("size", "segmentation", "data", "parity"),
    [
        (1_024, SHORT.segmentation, 4, 0),
        (1_025, WITH_PARITY, 5, 3),
        (1_024, WITH_PARITY, 4, 2),
        (256, WITH_PARITY, 1, 0),
        (1_024, replace(WITH_PARITY, parity_rate=1.0), 4, 4),
    ],
)
def test_segments(size: int, segmentation: SegmentationConfig, data: int, parity: int) -> None:
    scenario = replace(SHORT, payload_bytes=(size, size), segmentation=segmentation)
    assert (data_segments(scenario), parity_segments(scenario)) == (data, parity)


def test_parity_and_retransmission_of_two() -> None:
    found = residual_form(cell_of("a", segmentation=WITH_PARITY), LOSS)
    assert found is not None
    assert found[0] == ABOUT_PARITY
    assert found[1](0.2) == theory.parity_loss(0.2, 5, 4, 2)
    assert "where few retransmissions are allowed, an upper bound" in ABOUT_PARITY


def test_bursts_of_single_segments() -> None:
    bursts = Bursts(loss=0.1, burst_ms=500.0)
    found = residual_form(cell_of("a", payload_bytes=ONE, bursts=bursts), LOSS)
    assert found is not None
    assert found[0] == ABOUT_BURSTS
    assert found[1](0.1) == theory.burst_loss_in_time(0.1, 500.0, 5, 5_000.0)
    assert residual_form(cell_of("a", bursts=bursts), LOSS) is None, "four segments"


def test_groups() -> None:
    cell = cell_of("a", payload_bytes=ONE, participants=5, faults=LinkFaults(loss=0.3))
    found = residual_form(cell, GROUP)
    assert found is not None
    assert found[0] == ABOUT_GROUPS
    assert found[1](5.0) == pytest.approx(1 - theory.group_delivery(0.3, 0.3, 5, 4))
    by_loss = residual_form(cell_of("a", {"theory": "4"}, payload_bytes=ONE, participants=5), LOSS)
    assert by_loss is not None
    assert by_loss[1](0.3) == pytest.approx(found[1](5.0))


def test_no_form_where_none_fits() -> None:
    assert residual_form(Place("of real traffic"), LOSS) is None
    assert residual_form(cell_of("a"), PARITY) is None
    assert residual_form(cell_of("a", participants=3), LOSS) is None
    assert residual_form(cell_of("a", participants=3), GROUP) is None, "four segments"


def test_a_form_is_drawn_from_end_to_end_and_for_whole_participants() -> None:
    points = drawn(lambda x: x * 2, LOSS, 0.1, 0.4)
    assert points[0] == (0.1, 0.2)
    assert points[-1] == pytest.approx((0.4, 0.8))
    assert [x for x, _ in drawn(lambda x: x, GROUP, 2, 6)] == [2, 3, 4, 5, 6]
