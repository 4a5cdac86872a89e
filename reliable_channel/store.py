"""What a channel needs of the place where its state is kept, as a Protocol.

Implementations live in ``persistence``, or are the user's own. Nothing here keeps anything.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reliable_channel.records import Changes, EventRecord, LedgerRecord, Snapshot
from reliable_channel.types import ChannelId


class ChannelStore(Protocol):
    """Keeps the state of channels: rows by type and key, changes applied all or none.

    ``persistence.testing`` is the suite that an implementation has to pass.
    """

    async def open(self) -> None:
        """Make it ready; harmless when repeated.

        Raises:
            StoreUnavailableError: The backend cannot be reached.
        """

    async def close(self) -> None:
        """Release everything; harmless when repeated."""

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take the channel for this process and return its rows, but for the events.

        Raises:
            ChannelExistsError: Somebody drives it already.
            StoreUnavailableError: The backend failed.
        """

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give the channel back; harmless when it is not held."""

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes durably in one transaction, or none. Repeating a call that was applied changes nothing.

        A channel tells senders that nothing was sent after the first error below, and repeats the same call until it
        succeeds after the second. A store that cannot tell them apart should raise the second for whatever fails once
        it has begun to commit: with the first, what was reported as not sent would be sent after the next opening.

        Raises:
            StoreUnavailableError: Nothing was applied, nor will be; the same call may work later.
            StoreOutcomeUnknownError: It failed while committing: all was applied, or nothing, or that is still to
                come; the same call may work later.
            LeaseLostError: Nothing was applied; another process took the channel.
        """

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence, ascending, at most ``limit``.

        Raises:
            EventsExpiredError: Some of them were removed by retention.
            StoreUnavailableError: The backend failed.
        """

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope, or None."""

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget everything about a channel."""


def lease_of(scope: str) -> str:
    """Return what is leased with a ledger: one name for all of nodes, whatever the length of their epochs.

    A store is one membership's, and that has one period: nodes that disagree about it are two nodes that spend.
    """
    kind = scope.partition(":")[0]
    return kind if kind == "node" else scope


@runtime_checkable
class LedgerLeases(Protocol):
    """What a store may offer besides: that only one node counts in a ledger, whichever process it is in.

    Ledgers of which `lease_of` is the same are taken together. Where a store offers nothing, its user has to see to it.
    """

    async def acquire_ledger(self, scope: str) -> None:
        """Take a ledger, and those that go with it; the lease ends with the process, or with the closing of the store.

        Raises:
            BudgetInUseError: Somebody else counts in it.
            StoreUnavailableError: The backend failed.
        """

    async def release_ledger(self, scope: str) -> None:
        """Give back what `acquire_ledger` took; harmless when it is not held."""
