"""Grids: what a file becomes, one line for each mistake in it, and those that are shipped."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.laboratory.grids import (
    MAX_CELLS,
    NAME,
    Grid,
    flattened,
    grid_names,
    load_grid,
    over,
    read_grid,
)
from benchmarks.laboratory.parameters import BASE
from reliable_channel.errors import ConfigurationError

EXAMPLE = """
title = "An example"
description = '''
Over two
lines.'''
cpu_minutes = 3
max_channels = { 5 = 100, 20 = 10 }
labels = { part = "a" }

[base]
messages = 5
store.enabled = false

[settings.fast]
sds.acknowledgement_timeout_ms = 1_000
parity = 0.5

[[sweep]]
name = "two"
base.faults.delay_ms = 10
axes.setting = ["plain", "fast"]
axes.faults.loss = [0.0, 0.1]
axes.store.enabled = [false, true]

[[sweep]]
base.messages = 6
labels = { part = "b" }
axes.participants = [2, 5, 20]
axes.payload_bytes = [100, [10, 20]]

[[cell]]
name = "alone"
max_channels = 7
base.warm_up = true
"""


def grid_of(text: str) -> Grid:
    return read_grid(text.encode(), "my/file.toml")


# --- What files become ---------------------------------------------------------------------------


def test_axes_are_combined_in_their_order() -> None:
    grid = grid_of(EXAMPLE)
    assert (grid.name, grid.title, grid.description) == ("file", "An example", "Over two lines.")
    assert grid.cpu_minutes == 3.0
    assert [cell.name for cell in grid.cells] == [
        "two plain loss=0.0 store=off",
        "two plain loss=0.0 store=on",
        "two plain loss=0.1 store=off",
        "two plain loss=0.1 store=on",
        "two fast loss=0.0 store=off",
        "two fast loss=0.0 store=on",
        "two fast loss=0.1 store=off",
        "two fast loss=0.1 store=on",
        "participants=2 payload_bytes=100",
        "participants=2 payload_bytes=10-20",
        "participants=5 payload_bytes=100",
        "participants=5 payload_bytes=10-20",
        "participants=20 payload_bytes=100",
        "participants=20 payload_bytes=10-20",
        "alone",
    ]


def test_cells_have_what_file_sweep_setting_and_axes_say() -> None:
    grid = grid_of(EXAMPLE)
    scenario = grid.cell("two fast loss=0.1 store=on").scenario
    assert scenario.messages == 5
    assert scenario.faults.delay_ms == 10.0
    assert scenario.faults.loss == 0.1
    assert scenario.store.enabled
    assert scenario.sds.acknowledgement_timeout_ms == 1_000
    assert scenario.sds.bloom_capacity == BASE.sds.bloom_capacity
    assert scenario.segmentation.parity_rate == 0.5
    plain = grid.cell("two plain loss=0.1 store=off").scenario
    assert not plain.segmentation.enable_reed_solomon
    other = grid.cell("participants=5 payload_bytes=10-20").scenario
    assert (other.messages, other.payload_bytes, other.faults.delay_ms) == (6, (10, 20), 0.0)
    assert grid.cell("alone").scenario.warm_up


def test_labels_are_dotted_names_and_what_the_file_adds() -> None:
    grid = grid_of(EXAMPLE)
    assert grid.cell("two fast loss=0.1 store=on").labels == (
        ("setting", "fast"),
        ("faults.loss", 0.1),
        ("store.enabled", True),
        ("part", "a"),
    )
    assert grid.cell("participants=5 payload_bytes=10-20").label("part") == "b"
    assert grid.cell("alone").labels == (("part", "a"),)
    parity = grid_of('title = "x"\n[axes]\nparity = [0, 0.25]').cells[1]
    assert parity.labels == (("segmentation.parity_rate", 0.25),)
    assert parity.name == "parity=0.25"


def test_most_channels_go_by_group_size_and_by_cell() -> None:
    grid = grid_of(EXAMPLE)
    sizes = {cell.scenario.participants: cell.max_channels for cell in grid.cells[:-1]}
    assert sizes == {2: None, 5: 100, 20: 10}
    assert grid.cell("alone").max_channels == 7
    assert grid_of('title="x"\nmax_channels=9\n[axes]\nparity=[0]').cells[0].max_channels == 9


def test_axes_of_the_same_short_name_go_by_their_whole_name() -> None:
    grid = grid_of('title = "x"\n[axes]\nfaults.loss = [0.1]\nstore.loss = [0.2]')
    assert grid.cells[0].name == "faults.loss=0.1 store.loss=0.2"


def test_a_cell_is_found_by_key_name_and_number() -> None:
    grid = grid_of(EXAMPLE)
    cell = grid.cells[3]
    assert grid.cell(cell.key) is grid.cell(cell.name) is grid.cell("3") is cell
    for wanted in ("15", "-1", "²", "", "alon"):
        with pytest.raises(ConfigurationError, match="grid file, 0 to 14: ") as caught:
            grid.cell(wanted)
    assert "did you mean 'alone'?" in str(caught.value)


def test_a_later_change_comes_last() -> None:
    values = over({"parity": 0.1, "messages": 3}, {"parity": 0.2})
    assert list(values.items()) == [("messages", 3), ("parity", 0.2)]


def test_names_are_dotted_however_they_are_written() -> None:
    assert flattened({"faults": {"loss": 0.1}, "messages": 3}, "base") == {
        "faults.loss": 0.1,
        "messages": 3,
    }


# --- Mistakes ------------------------------------------------------------------------------------

TITLE = 'title = "x"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", "not TOML: "),
        ("", "title: give the grid one"),
        ("title = 3", "title must be a text, not 3"),
        (TITLE, "no cells; give it [axes], a [[sweep]] or a [[cell]]"),
        (TITLE + "axis = 1", "there is no 'axis'; did you mean 'axes'?"),
        (TITLE + "faults.loss = 1", "'faults' is a parameter; write it under base"),
        (TITLE + "cpu_minutes = -1", "cpu_minutes must be a number from 0 on, not -1"),
        (TITLE + "base = 1\n[axes]\nparity = [0]", "base must be a table, not 1"),
        (TITLE + "[axes]", "axes: give at least one list of values"),
        (TITLE + "[axes]\nparity = []", "axes.parity must be a list with at least one value"),
        (TITLE + "[axes]\nparity = 1", "axes.parity must be a list with at least one value"),
        (TITLE + "[axes]\nlos = [1]", "axes: there is no 'los'; did you mean 'faults.loss' or"),
        (TITLE + "[axes]\nfaults.loss = [0, 2]", "cell 'loss=2': faults.loss must be from 0.0"),
        (TITLE + '[axes]\nfaults.loss = ["a b"]', "cell 'loss=a b': faults.loss must be a number"),
        (TITLE + '[axes]\nfaults.loss = ["a\\u0007"]', "is no name for a cell"),
        (TITLE + "[base]\nmesages = 1", "base: there is no 'mesages'; did you mean 'messages'?"),
        (TITLE + '[axes]\nsetting = ["fst"]\n[settings.fast]', "did you mean 'fast'?"),
        (TITLE + "[axes]\nsetting = [1]", "describe it in [settings.1]"),
        (TITLE + "settings.a = 1", "settings.a must be a table of parameters"),
        (TITLE + "[settings.a]\nlos = 1", "settings.a: there is no 'los'"),
        (TITLE + "[settings.'a/b']", "settings: 'a/b' is no name"),
        (TITLE + "sweep = 1", "sweep: write it as [[sweep]]"),
        (TITLE + "[[sweep]]", "sweep 1: axes: give at least one list of values"),
        (TITLE + '[[sweep]]\nname = "a"\nx = 1', "sweep 1 (a): there is no 'x'; known are name"),
        (TITLE + '[[sweep]]\nname = "a/b"', "sweep 1 (a/b): use letters, digits"),
        (TITLE + "[[sweep]]\nmessages = 1", "sweep 1: 'messages' is a parameter; write it under"),
        (
            TITLE + '[[sweep]]\nname = "a"\nbase.participants = 1\naxes.parity = [0.5]',
            "sweep 1 (a): cell 'a parity=0.5': participants must be from 2 to 1000, not 1",
        ),
        (TITLE + "[[cell]]\nbase.messages = 1", "cell 1: needs a name"),
        (TITLE + '[[cell]]\nname = "a"\naxes.parity = [1]', "cell 1 (a): there is no 'axes'"),
        (TITLE + '[[cell]]\nname = "a"\nbase.messages = -1', "cell 1 (a): messages must be from"),
        (TITLE + '[[cell]]\nname = "a"\nlabels.b = [1]', "cell 1 (a): labels.b must be a text"),
        (
            TITLE + '[[cell]]\nname = "a"\nlabels.theory = "77"',
            "cell 1 (a): labels.theory must be one of 1, 1b, 2, 3, 4, 5, 6, 7, 8, 9, not '77'",
        ),
        (
            TITLE + "labels.theory = 7\n[axes]\nparity = [0]",
            "cell 'parity=0': labels.theory: form 7 needs bursts in whose bad state all is lost",
        ),
        (
            TITLE + '[axes]\nparity = [0]\n[labels]\ntheory = "5"\nreceivers = "two"',
            "cell 'parity=0': labels.receivers must be a whole number from 1 on, not 'two'",
        ),
        (TITLE + "max_channels = 0\n[axes]\nparity = [0]", "max_channels must be a whole number"),
        (TITLE + "max_channels.x = 1\n[axes]\nparity = [0]", "max_channels must be a whole number"),
        (
            TITLE + "[axes]\nparity = [0]\n[[sweep]]\naxes.parity = [0]",
            "2 cells are named 'parity=0'; give each [[sweep]] a name",
        ),
        (
            TITLE + '[axes]\nparity = [0]\n[[sweep]]\nname = "a"\naxes.parity = [0]',
            "cells 'parity=0' and 'a parity=0' are the same scenario; leave one out",
        ),
        (
            TITLE + f"[axes]\nmessages = {list(range(70))}\nfaults.delay_ms = {list(range(70))}",
            f"4900 cells are more than {MAX_CELLS}",
        ),
        (TITLE + "base = " + "[" * 5_000, "not TOML: "),
    ],
)
def test_a_mistake_is_one_line_with_file_and_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        grid_of(text)
    line = str(caught.value)
    assert line.startswith("my/file.toml: ")
    assert said in line
    assert "\n" not in line


def test_several_sweeps_are_not_too_many_cells_together_either() -> None:
    sweep = "\n[[sweep]]\nname = 'a{}'\nbase.interval_ms = {}\naxes.messages = {}"
    text = TITLE + "".join(sweep.format(i, i, list(range(1, 701))) for i in range(6))
    with pytest.raises(ConfigurationError, match="4200 cells are more than"):
        grid_of(text)


def test_what_is_no_text_is_no_grid() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("a.toml: not TOML: not UTF-8")):
        read_grid(b"\xff", "a.toml")


# --- Where they come from ------------------------------------------------------------------------


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(EXAMPLE)
    assert load_grid(str(path)).name == "mine"
    other = tmp_path / "mine"
    other.write_text("title = 3")
    with pytest.raises(ConfigurationError, match="title must be a text"):
        load_grid(str(other))


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'smoke'\?"):
        load_grid("smok")
    for name in ("missing.toml", "folder.toml"):
        (tmp_path / "folder.toml").mkdir(exist_ok=True)
        path = tmp_path / name
        with pytest.raises(ConfigurationError, match=f"^{re.escape(str(path))}: ") as caught:
            load_grid(str(path))
        assert "\n" not in str(caught.value)


# --- Those that are shipped ----------------------------------------------------------------------

SHIPPED = ("bloom", "bursts", "default", "groups", "parity", "ratelimit", "smoke")


def test_the_promised_grids_are_there() -> None:
    assert {*SHIPPED} <= {*grid_names()}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_grid_is_whole(name: str) -> None:
    grid = load_grid(name)
    assert grid.name == name
    assert grid.title
    assert grid.description.endswith(".")
    assert grid.cpu_minutes > 0
    for cell in grid.cells:
        assert NAME.fullmatch(cell.name)
        assert cell.scenario.sds.dependency_timeout_ms == 300_000
        assert cell.scenario.settle_ms > 2 * cell.scenario.sds.dependency_timeout_ms


def test_all_shipped_grids_fit_into_45_minutes_of_two_cores() -> None:
    assert sum(load_grid(name).cpu_minutes for name in SHIPPED) <= 90


def test_smoke_shows_each_feature() -> None:
    scenarios = [cell.scenario for cell in load_grid("smoke").cells]
    assert any(
        item.faults.loss and item.faults.duplicate and item.faults.reorder for item in scenarios
    )
    assert any(item.segmentation.enable_reed_solomon for item in scenarios)
    assert any(item.bursts for item in scenarios)
    assert any(item.delays for item in scenarios)
    assert any(item.churn for item in scenarios)
    assert any(item.partitions for item in scenarios)
    assert any(item.store.enabled and item.store.loss for item in scenarios)
    assert any(item.senders and item.participants > 2 for item in scenarios)
    assert any(item.rate_limit.enabled for item in scenarios)
    assert any(item.sync_loss is not None for item in scenarios)
    assert any(not item.sds.bloom_capacity for item in scenarios)


def test_default_compares_settings_from_no_loss_to_half() -> None:
    cells = load_grid("default").cells
    assert {cell.label("setting") for cell in cells} == {"plain", "parity", "store", "both"}
    assert {cell.scenario.participants for cell in cells} == {2, 10}
    losses = sorted({cell.scenario.faults.loss for cell in cells})
    assert (losses[0], losses[-1]) == (0.0, 0.5)
    for cell in cells:
        scenario, setting = cell.scenario, cell.label("setting")
        assert scenario.store.enabled == (setting in ("store", "both"))
        assert scenario.segmentation.enable_reed_solomon == (setting in ("parity", "both"))


def test_parity_has_the_same_map_for_independent_and_bursty_losses() -> None:
    maps: dict[bool, set[tuple[float, float]]] = {False: set(), True: set()}
    for cell in load_grid("parity").cells:
        scenario = cell.scenario
        bursts = scenario.bursts
        loss = scenario.faults.loss if bursts is None else bursts.loss
        rate = scenario.segmentation.parity_rate if scenario.segmentation.enable_reed_solomon else 0
        maps[bursts is not None].add((rate, loss))
        assert scenario.payload_bytes == (2_048, 2_048)
    assert maps[False] == maps[True]
    assert len(maps[True]) >= 20


def test_groups_grow_to_200_and_are_then_played_less() -> None:
    cells = load_grid("groups").cells
    assert {cell.scenario.participants for cell in cells} >= {2, 10, 50, 200}
    by_size = sorted({(cell.scenario.participants, cell.channels(5_000)) for cell in cells})
    assert all(small[1] > large[1] for small, large in pairwise(by_size))
    assert {(cell.scenario.store.enabled, cell.scenario.sds.enable_repair) for cell in cells} == {
        (store, repair) for store in (False, True) for repair in (False, True)
    }
