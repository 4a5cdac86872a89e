"""People see channels, rate, time left, engine and wave; without a terminal only now and then."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from benchmarks.laboratory.progress import Moving, Plain, progress_on


def test_plain_lines_come_now_and_then() -> None:
    lines: list[str] = []
    now = 0.0
    plain = Plain(lines.append, lambda: now)
    plain.begin("2 processes", 2_000, 3)
    plain.wave(2)
    for now in (1.0, 10.0, 15.0, 16.0, 31.0, 40.0):
        plain.advance(int(now * 50))
    plain.advance(2_000)
    plain.say("done")
    assert lines == [
        "2,000 channels, waves: 3, 2 processes",
        "750 of 2,000 channels, 50.0 a second, 0:00:25 left, 2 processes, wave 2 of 3",
        "1,550 of 2,000 channels, 50.0 a second, 0:00:09 left, 2 processes, wave 2 of 3",
        "2,000 of 2,000 channels, 50.0 a second, 2 processes, wave 2 of 3",
        "done",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_measuring_is_shown(terminal: bool) -> None:
    text = StringIO()
    shown = progress_on(Console(file=text, force_terminal=terminal, width=120))
    shown.measure(0, 0)
    assert text.getvalue() == ""
    shown.measure(0, 1_300)
    shown.measure(1, 1_300)
    shown.end()
    assert "measuring what cells cost: 0 of 1,300" in text.getvalue()
    assert text.getvalue().count("\n") == 1 or terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_bar(terminal: bool) -> None:
    text = StringIO()
    shown = progress_on(Console(file=text, force_terminal=terminal, width=120))
    assert isinstance(shown, Moving if terminal else Plain)
    shown.begin("Spark local[2]", 100, 1)
    shown.wave(1)
    shown.advance(40)
    shown.say("a [line] as it is")
    shown.end()
    shown.end()
    assert "a [line] as it is" in text.getvalue()
    assert ("\x1b[" in text.getvalue()) == terminal
    assert ("Spark local[2], wave 1 of 1" in text.getvalue()) == terminal
