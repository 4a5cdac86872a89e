"""An asyncio event loop in virtual time: hours pass in milliseconds, the same way each time.

When nothing is ready, time jumps to the next timer. When there is no timer either, nothing could
ever happen again: that raises `VirtualDeadlockError` instead of hanging. Functions given to an
executor run at once on the loop's thread, so ``asyncio.to_thread`` works and takes no time. Real
I/O has no place here: sockets, pipes and subprocesses are refused.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from reliable_channel.types import SECOND, Nanoseconds

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

START_NS: Final[Nanoseconds] = 1_700_000_000 * SECOND
"""A Unix time for clocks of virtual loops to start from: some day in November 2023."""

P = ParamSpec("P")
T = TypeVar("T")


class VirtualDeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: whatever is awaited can never happen."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 and passes only while there is nothing to do."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run the function now, on this thread, and return its outcome as a finished future."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            raise VirtualDeadlockError(self._describe_deadlock())
        self._now += max(0.0, seconds)

    def _describe_deadlock(self) -> str:
        waiting = sorted(
            f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
            for task in asyncio.all_tasks(self)
        )
        return (
            f"nothing is ready and no timer is set at virtual time {self._now:.3f} s; "
            f"waiting: {', '.join(waiting) or 'no task'}"
        )


def run_virtual(main: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function in a virtual-time loop of its own and return its result.

    Tasks that are left when it returns are cancelled, as by ``asyncio.run``.

    Args:
        main: The coroutine function.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        VirtualDeadlockError: It waits for something that can never happen.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main(*args, **kwargs))


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a test function of a coroutine function: ``@virtual_time`` above ``async def test_…``.

    Parameters and synchronous fixtures work as always; asynchronous fixtures would live in another
    loop, so open what the test needs inside it.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test, *args, **kwargs)

    return run


class _JumpingSelector(selectors.SelectSelector):
    """Selects nothing, ever; told to wait, it lets the loop's time pass instead.

    Args:
        jump: Called with the seconds that the loop wants to wait, None for ever.
    """

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        """Take note of the loop's own wake-up socket, and refuse any other."""
        if self.get_map():
            raise NotImplementedError("no real I/O in virtual time")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass."""
        self._jump(timeout)
        return []
