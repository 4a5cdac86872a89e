"""Questions to the store behind a node's REST API: is it there, what is it, what was there since.

It decides nothing about messages and remembers none. Pages are read one at a time, so that what is
held at once is bounded, and a store that names pages without end is left.

Spec: 13/WAKU2-STORE, presence, message hash lookup and content filtered queries, pagination.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from messaging_adapter.rest_client import Refusals, RestClient, RestError, Trouble, shown
from messaging_adapter.rest_wire import MessageReader, StorePage, hash_to_text
from reliable_channel.errors import DecodeError
from reliable_channel.ports import IncomingMessage
from reliable_channel.types import Nanoseconds

PATH: Final = "/store/v3/messages"

HASH_PAGE: Final = 100
"""Hashes that one question names, and one answer gives: the node's own limit."""

DATA_PAGE: Final = 20
"""Messages with their data in one answer: 20 of 150 KiB are 4 MiB of JSON."""

MAX_PAGES: Final = 1_000
"""Pages of one query; a store with more to give is asked again later."""

MAX_TOPICS: Final = 10
"""Content topics in one query (13/STORE)."""


class RestStore:
    """Asks the store.

    Args:
        client: Reaches the node.
        reader: Reads its answers.
        refusals: Counts what could not be used.
        peers: Addresses of store nodes that are asked, by turns when one fails; without any the
            node chooses, or answers itself.
    """

    def __init__(
        self,
        client: RestClient,
        reader: MessageReader,
        refusals: Refusals,
        peers: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._reader = reader
        self._refusals = refusals
        self._peers = list(peers)

    async def present(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Return those of at most 100 messages that are stored.

        Raises:
            RestError: The store could not be asked.
        """
        page = await self._ask({"hashes": _joined(hashes), "pageSize": str(HASH_PAGE)})
        return {entry.message_hash for entry in page.entries} & set(hashes)

    async def lookup(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Return those of the messages that are stored, in the order asked.

        Raises:
            RestError: The store could not be asked.
        """
        wanted = list(dict.fromkeys(hashes))
        found: dict[bytes, IncomingMessage] = {}
        for first in range(0, len(wanted), DATA_PAGE):
            part = wanted[first : first + DATA_PAGE]
            query = {
                "hashes": _joined(part),
                "includeData": "true",
                "pageSize": str(DATA_PAGE),
            }
            for entry in (await self._ask(query)).entries:
                if entry.message is not None:
                    found[entry.message_hash] = entry.message
        return [found[key] for key in wanted if key in found]

    async def hashes_since(
        self, pubsub_topic: str, content_topics: Sequence[str], start_ns: Nanoseconds
    ) -> AsyncGenerator[list[bytes], None]:
        """Give the hashes of what is stored since a time, oldest first, page by page.

        Args:
            pubsub_topic: Where the content topics travel.
            content_topics: At most 10.
            start_ns: Unix time.

        Raises:
            RestError: The store could not be asked.
        """
        query = _content_query(pubsub_topic, content_topics, start_ns, HASH_PAGE)
        async with aclosing(self._pages(query)) as pages:
            async for page in pages:
                yield [entry.message_hash for entry in page.entries]

    async def messages_since(
        self, pubsub_topic: str, content_topics: Sequence[str], start_ns: Nanoseconds
    ) -> AsyncGenerator[list[IncomingMessage], None]:
        """Give what is stored since a time, oldest first, page by page; arguments as above.

        Raises:
            RestError: The store could not be asked.
        """
        query = _content_query(pubsub_topic, content_topics, start_ns, DATA_PAGE)
        async with aclosing(self._pages({**query, "includeData": "true"})) as pages:
            async for page in pages:
                yield [entry.message for entry in page.entries if entry.message is not None]

    async def _pages(self, query: Mapping[str, str]) -> AsyncGenerator[StorePage, None]:
        cursors = {""}
        more: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            page = await self._ask({**query, **more})
            yield page
            if page.cursor is None:
                return
            if page.cursor in cursors:
                self._refusals.count("cursor_loop", page.cursor)
                return
            cursors.add(page.cursor)
            more = {"cursor": page.cursor}
        self._refusals.count("endless_pages", f"more than {MAX_PAGES}")

    async def _ask(self, query: Mapping[str, str]) -> StorePage:
        where = {"peerAddr": self._peers[0]} if self._peers else {}
        try:
            return await self._answer({**where, **query})
        except RestError:
            self._peers = self._peers[1:] + self._peers[:1]  # another one next time
            raise

    async def _answer(self, query: Mapping[str, str]) -> StorePage:
        answer = await self._client.request("GET", PATH, query=query)
        if not answer.ok:
            text = f"the store cannot be asked: {answer.words}"
            raise RestError(Trouble.FAILED, text)
        try:
            page = self._reader.page(await answer.json())
        except DecodeError as error:
            self._refusals.count("bad_store_answer", error)
            text = f"the store's answer cannot be read ({error})"
            raise RestError(Trouble.BROKEN, text) from error
        if page.status != 200:
            text = f"the store refused with {page.status}: {shown(page.words)}"
            raise RestError(Trouble.FAILED, text)
        return page


def _content_query(
    pubsub_topic: str, content_topics: Sequence[str], start_ns: Nanoseconds, size: int
) -> dict[str, str]:
    return {
        "pubsubTopic": pubsub_topic,
        "contentTopics": ",".join(content_topics),
        "startTime": str(max(1, start_ns)),
        "ascending": "true",
        "pageSize": str(size),
    }


def _joined(hashes: Sequence[bytes]) -> str:
    return ",".join(hash_to_text(item) for item in hashes)
