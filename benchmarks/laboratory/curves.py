"""Closed forms to draw beside the measured deliveries, from the settings of a cell.

They are curves to compare with: retransmission and parity alone, each receiver by itself, without store and repair.
It must not judge whether a cell obeys them; that is ``checks``.

Spec: none of its own; `theory` for the forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeAlias

from benchmarks.laboratory import theory
from benchmarks.laboratory.axes import GROUP, LOSS, Axis, Shown
from benchmarks.laboratory.cell import Cell
from benchmarks.simulation.scenario import Scenario

Form: TypeAlias = Callable[[float], float]

PLACES: Final = 60
"""At which a form is drawn."""

ABOUT_BURSTS: Final = "dotted: closed form 7, retransmission alone"
ABOUT_PARITY: Final = (
    "dotted: closed forms 2 and 6, retransmission and parity alone, one receiver; where few retransmissions "
    "are allowed, an upper bound: after a timeout one segment asks first, "
    "and the others are sent again only when they are missing"
)
ABOUT_GROUPS: Final = (
    "dotted: closed form 4, retransmission alone, acknowledgements lost as often as copies"
)


def data_segments(scenario: Scenario) -> int:
    """Return into how many segments the largest payload is cut."""
    return max(1, -(-scenario.payload_bytes[1] // scenario.segmentation.segment_size_bytes))


def parity_segments(scenario: Scenario) -> int:
    """Return how many parity segments it gets."""
    data = data_segments(scenario)
    if data == 1 or not scenario.segmentation.enable_reed_solomon:
        return 0
    return min(data, math.ceil(round(scenario.segmentation.parity_rate * data, 6)))


def residual_form(cell: Shown, axis: Axis) -> tuple[str, Form] | None:
    """Return what share of deliveries a closed form says is not made, along an axis.

    Returns:
        What the curve is, and the function; None where no form fits.
    """
    if not isinstance(cell, Cell) or axis not in (LOSS, GROUP):
        return None
    scenario = cell.scenario
    tries = scenario.sds.max_retransmissions
    data, parity = data_segments(scenario), parity_segments(scenario)
    if cell.label("theory") == "4" or (axis is GROUP and data == 1):
        return _group_form(scenario, axis)
    if axis is not LOSS or scenario.participants != 2 or data + parity > theory.MOST_SEGMENTS:
        return None
    if (bursts := scenario.bursts) is None:
        return ABOUT_PARITY, lambda loss: theory.parity_loss(loss, tries, data, parity)
    if data > 1 or bursts.good_loss > 0 or bursts.bad_loss < 1:
        return None
    distance_ms = float(scenario.sds.acknowledgement_timeout_ms)
    return ABOUT_BURSTS, lambda loss: theory.burst_loss_in_time(
        min(loss, 0.999), bursts.burst_ms, tries, distance_ms
    )


def _group_form(scenario: Scenario, axis: Axis) -> tuple[str, Form] | None:
    if scenario.bursts is not None or data_segments(scenario) > 1:
        return None
    tries = scenario.sds.max_retransmissions

    def lost(loss: float, participants: float) -> float:
        ack_loss = loss if scenario.sync_loss is None else scenario.sync_loss
        return 1 - theory.group_delivery(loss, ack_loss, tries, round(participants) - 1)

    if axis is GROUP:
        return ABOUT_GROUPS, lambda participants: lost(scenario.faults.loss, participants)
    return ABOUT_GROUPS, lambda loss: lost(loss, scenario.participants)


def drawn(form: Form, axis: Axis, low: float, high: float) -> tuple[tuple[float, float], ...]:
    """Return points of a form between two places of an axis."""
    if axis is GROUP:
        places = sorted({round(low * (high / low) ** (n / PLACES)) for n in range(PLACES + 1)})
        return tuple((float(place), form(place)) for place in places)
    step = (high - low) / PLACES
    return tuple((low + n * step, form(low + n * step)) for n in range(PLACES + 1))
