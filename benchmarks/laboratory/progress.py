"""How far a run is, for people: a moving line on a terminal, a plain line now and then elsewhere.

It must not ask an engine anything: it is told.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

PLAIN_SECONDS: Final = 15.0
"""Between two lines where there is no terminal."""


class Progress(Protocol):
    """Who is told how far a run is."""

    def say(self, text: str) -> None:
        """Take a line for people."""

    def measure(self, done: int, total: int) -> None:
        """Take of how many cells it is known what they cost; before `begin`."""

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Take what there is to do: channels, in so many waves."""

    def wave(self, number: int) -> None:
        """Take the number of the wave that begins, from 1."""

    def advance(self, done: int) -> None:
        """Take how many channels are done by now, since `begin`."""

    def end(self) -> None:
        """Stop showing anything; harmless when repeated."""


class Silent:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def measure(self, done: int, total: int) -> None:
        """Show nothing."""

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Show nothing."""

    def wave(self, number: int) -> None:
        """Show nothing."""

    def advance(self, done: int) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class Reckoning:
    """The rate of a run and the time that is left, from what was told so far.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.engine = ""
        self.channels = self.waves = self.number = self.done = 0
        self._began = clock()

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Begin to count."""
        self.engine, self.channels, self.waves = engine, channels, waves
        self.number = self.done = 0
        self._began = self._clock()

    @property
    def rate(self) -> float:
        """Channels a second."""
        return self.done / max(self._clock() - self._began, 1e-9)

    @property
    def text(self) -> str:
        """All of it."""
        parts = [f"{self.done:,} of {self.channels:,} channels"]
        if self.done:
            parts.append(f"{self.rate:,.1f} a second")
        if 0 < self.done < self.channels:
            left = round((self.channels - self.done) / max(self.rate, 1e-9))
            parts.append(f"{timedelta(seconds=left)} left")
        return ", ".join([*parts, self.engine, f"wave {self.number} of {self.waves}"])


def measuring(done: int, total: int) -> str:
    """Return how far it is known what cells cost."""
    return f"measuring what cells cost: {done:,} of {total:,}"


class Plain:
    """Writes a line when a run begins, at times while it goes on, and when all is done.

    Args:
        write: Takes a line.
        clock: Seconds.
    """

    def __init__(
        self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._state = Reckoning(clock)
        self._shown = clock()

    def say(self, text: str) -> None:
        """Write it."""
        self._write(text)

    def measure(self, done: int, total: int) -> None:
        """Write a line when it begins, and when the last is long ago."""
        if total and (not done or self._clock() - self._shown >= PLAIN_SECONDS):
            self._shown = self._clock()
            self._write(measuring(done, total))

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Write what there is to do."""
        self._state.begin(engine, channels, waves)
        self._shown = self._clock()
        self._write(f"{channels:,} channels, waves: {waves}, {engine}")

    def wave(self, number: int) -> None:
        """Take note."""
        self._state.number = number

    def advance(self, done: int) -> None:
        """Write a line when the last is long ago, or all is done."""
        state = self._state
        before, state.done = state.done, done
        finished = before < done == state.channels
        if finished or self._clock() - self._shown >= PLAIN_SECONDS:
            self._shown = self._clock()
            self._write(state.text)

    def end(self) -> None:
        """Do nothing."""


class Moving:
    """Keeps a bar and a line up to date on a terminal.

    Args:
        console: The terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = Reckoning(time.monotonic)
        self._bar: Bar | None = None
        self._task = TaskID(0)

    def say(self, text: str) -> None:
        """Write it, above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def measure(self, done: int, total: int) -> None:
        """Show it."""
        if not total:
            return
        if self._bar is None:
            self._start(measuring(done, total), total)
        self._update(measuring(done, total), done)

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Show the bar."""
        self.end()
        self._state.begin(engine, channels, waves)
        self._start(self._state.text, channels)

    def _start(self, text: str, total: int) -> None:
        self._bar = Bar(
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(text, total=total)
        self._bar.start()

    def wave(self, number: int) -> None:
        """Show it."""
        self._state.number = number
        self._show()

    def advance(self, done: int) -> None:
        """Show it."""
        self._state.done = done
        self._show()

    def end(self) -> None:
        """Take the bar away."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()

    def _show(self) -> None:
        self._update(self._state.text, self._state.done)

    def _update(self, text: str, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=text)


def progress_on(console: Console) -> Progress:
    """Return what shows progress on a console: moving on a terminal, plain lines elsewhere."""
    if console.is_terminal:
        return Moving(console)
    return Plain(Moving(console).say)
