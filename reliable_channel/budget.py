"""How a node spends its epoch budget: restored when it starts, counted durably before each message.

The one door to the budget for messaging adapters, which must not reach into the core. Nothing here
transmits, and nothing here is for channels: their machines ask the budget themselves.

Spec: 17/WAKU2-RLN-RELAY; RELIABLE-CHANNEL-API, Rate limiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from reliable_channel.config import RateLimitConfig
from reliable_channel.core.rate_limit import EpochRateLimiter, TrafficClass
from reliable_channel.errors import PublishRejectedError, StoreError
from reliable_channel.ports import ChannelStore, Clock
from reliable_channel.records import LedgerRecord, key_of
from reliable_channel.store import LedgerLeases
from reliable_channel.types import SECOND, Nanoseconds

__all__ = (
    "BudgetGate",
    "EpochRateLimiter",
    "acquire_budget",
    "release_budget",
    "restore_budget",
)

NODE_CLIENT: Final = "node"
"""The name of the node's own messages among those that share the budget; channels have others."""

logger = logging.getLogger(__name__)


async def acquire_budget(
    config: RateLimitConfig, store: ChannelStore, *, now: Nanoseconds
) -> EpochRateLimiter:
    """Return the membership's ledger as `restore_budget` does, for nobody but this node.

    A store without ``LedgerLeases`` cannot keep others away. Without a limit nothing is counted, and nobody is.

    Args:
        config: The limits of the membership.
        store: Open, and the one that transmissions will be counted in.
        now: Unix time in nanoseconds; a ledger that is ahead of it is warned of.

    Raises:
        BudgetInUseError: Another node counts in it.
        StoreError: The ledger could not be read.
    """
    scope = scope_of(config)
    if not (config.enabled and isinstance(store, LedgerLeases)):
        budget = await restore_budget(config, store)
    else:
        await store.acquire_ledger(scope)
        try:
            budget = await restore_budget(config, store)
        except BaseException:
            await store.release_ledger(scope)
            raise
    warn_of_future(budget, now)
    return budget


def warn_of_future(budget: EpochRateLimiter, now: Nanoseconds) -> None:
    """Log a warning where a ledger was counted in an epoch that begins after now: a clock was ahead, or is behind."""
    ahead = budget.epoch * budget.period - now
    if budget.enabled and ahead > 0:
        logger.warning(
            "epoch budget %s was counted in an epoch that begins in %s, so what is left of it has to "
            "last until %s from now; if this clock is behind, put it right, and if an earlier one was "
            "ahead, stop the process and run reliable-channel restored --forget-future",
            budget.scope,
            duration(ahead),
            duration(ahead + budget.period),
        )


def duration(time_ns: Nanoseconds) -> str:
    """Return a length of time in words, in whole units of a fitting size."""
    seconds = time_ns / SECOND
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} seconds"


async def release_budget(budget: EpochRateLimiter, store: ChannelStore) -> None:
    """Let others have a ledger that `acquire_budget` returned."""
    if budget.enabled and isinstance(store, LedgerLeases):
        await store.release_ledger(budget.scope)


def scope_of(config: RateLimitConfig) -> str:
    """Return the scope of the membership's ledger."""
    return f"node:{config.epoch_period_sec}"


async def restore_budget(config: RateLimitConfig, store: ChannelStore) -> EpochRateLimiter:
    """Return the membership's ledger as the store knows it.

    The ledger's scope names the length of an epoch: epochs of another length count differently, and
    a number from there could lie ahead for years.

    Args:
        config: The limits of the membership.
        store: Open, and the one that transmissions will be counted in.

    Raises:
        StoreError: The ledger could not be read.
    """
    scope = scope_of(config)
    restored = await store.load_ledger(scope)
    return EpochRateLimiter(config, scope=scope, restored=restored)


class BudgetGate:
    """Lets the node's own messages through, in the order in which they came, as the budget admits.

    Args:
        budget: The membership's ledger.
        store: Where it is kept.
        clock: Says which epoch it is.
        jitter: Draws from [0, 1): where in the spread after an epoch's beginning to go on.
    """

    def __init__(
        self,
        budget: EpochRateLimiter,
        store: ChannelStore,
        *,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._budget = budget
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._turn = asyncio.Lock()
        self._saved: LedgerRecord | None = None

    async def close(self) -> None:
        """Keep what came of the last messages: a row that says they are open would cost the next epoch."""
        if self._saved is not None and self._budget.record() != self._saved:
            try:
                await self._save()
            except StoreError as error:
                logger.warning("the next epoch will have less: its budget is not saved: %s", error)

    @asynccontextmanager
    async def transmission(self) -> AsyncIterator[None]:
        """Wait until a message is admitted and durably counted; publish it inside.

        What ends after the epoch has ended counts in both epochs, unless it was rejected.

        Raises:
            StoreError: It could not be counted; it must not be transmitted.
        """
        admitted = await self._admit()
        try:
            await self._save()
        except BaseException:
            self._budget.release(admitted)
            raise
        try:
            yield
        except PublishRejectedError:
            self._budget.release(admitted)
            raise
        except BaseException:  # whatever else went wrong, it may be out
            await self._confirm(admitted)
            raise
        await self._confirm(admitted)

    async def _admit(self) -> int:
        client, traffic, since = NODE_CLIENT, TrafficClass.FRESH, self._clock.now_ns()
        async with self._turn:
            try:
                now = self._clock.now_ns()
                while (admitted := self._budget.admit(client, traffic, now)) is None:
                    self._budget.set_waiting(client, traffic, since)
                    at = self._budget.next_admission(client, traffic, now, self._jitter())
                    await asyncio.sleep((at - now) / SECOND)
                    now = self._clock.now_ns()
            finally:
                self._budget.set_waiting(client, traffic, None)
        return admitted

    async def _save(self) -> None:
        if self._budget.enabled:
            record = self._budget.record()
            await self._store.commit("", {(LedgerRecord, key_of(record)): record})
            self._saved = record

    async def _confirm(self, admitted: int) -> None:
        if self._budget.confirm(admitted, self._clock.now_ns()):
            try:
                await self._save()
            except StoreError as error:
                logger.warning("the epoch budget is saved with the next message only: %s", error)
