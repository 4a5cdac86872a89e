"""What the segments of a complete set make: the payload, or nothing.

Of several candidates for one index those are tried first whose histories name each other. It must not change a set
that makes nothing: another segment may still complete it.

Spec: LIP-243 (Segmentation), Reassembly, Integrity; docs/adr/0013-what-a-stranger-may-not-do.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Final, TypeAlias

from reliable_channel.core import reed_solomon
from reliable_channel.core.hashing import keccak256, zeros_until
from reliable_channel.core.payload import Candidate, IncomingPayload, SetKey
from reliable_channel.core.segmentation import PARITY_CODES
from reliable_channel.core.wire import SegmentMessage

MAX_ASSEMBLIES: Final = 8
"""Times that one received segment may have a payload put together and hashed."""

MAX_PARITY_CHOICES: Final = 64
"""Combinations of parity segments that are looked at, of which those with two candidates of one index are left out."""


def assemble(payload: IncomingPayload, latest: SegmentMessage | None = None) -> bytes | None:
    """Return the payload that the segments of a complete set make, or None when they make no such payload.

    Missing data segments are rebuilt from parity and put into ``payload.data``; of several candidates the right ones
    come first afterwards. The hash is always checked. Where it does not match, the set is as before.

    Args:
        payload: A complete set.
        latest: The segment it was given last: what does without it was tried before. None to try everything.

    At most ``MAX_ASSEMBLIES`` are tried.
    """
    for chosen, parity in islice(attempts(payload, latest), MAX_ASSEMBLIES):
        data = (
            {index: item.chunk for index, item in chosen.items()} if chosen else payload.data.copy()
        )
        message = put_together(payload.key, data, parity)
        if message is not None:
            for index, item in chosen.items():
                payload.choose(index, item)
            if chosen:
                payload.gather()
            payload.data = data
            return message
        payload.failures += 1
    return None


Attempt: TypeAlias = tuple[dict[int, Candidate], dict[int, bytes]]
"""Data candidates by index, empty for the only ones there are, and parity chunks by index."""


def attempts(payload: IncomingPayload, latest: SegmentMessage | None) -> Iterator[Attempt]:
    """Yield what may make the payload, the likeliest first.

    Each candidate of the last index gets the same share: only one of them is the end of the true chain.
    """
    if not payload.rivals:
        for parity in parity_choices(payload, latest):
            yield {}, parity
        return
    options = {index: payload.candidates(index) for index in sorted(payload.data, reverse=True)}
    if latest is not None and not latest.is_parity:
        index = latest.data_segment_index
        options[index] = [item for item in options[index] if item.chunk is latest.payload]
    order = list(options)
    share = max(1, MAX_ASSEMBLIES // len(options[order[0]]))
    for last in options[order[0]]:
        pairs = (
            (chosen, parity)
            for chosen in chains(options, order, last)
            for parity in parity_choices(payload, latest)
        )
        yield from islice(pairs, share)


def chains(
    options: dict[int, list[Candidate]], order: Sequence[int], last: Candidate
) -> Iterator[dict[int, Candidate]]:
    """Yield a candidate for each index, ending in the given one; those that name each other come first.

    A sender fixes the histories of a payload's segments in one step, so each of them names the one before.

    Args:
        options: Candidates by index.
        order: The indices, last to first.
        last: Of the last index.
    """
    stack = [(1, {order[0]: last})]
    while stack:
        place, chosen = stack.pop()
        while place < len(order) and len(options[order[place]]) == 1:
            chosen[order[place]] = options[order[place]][0]
            place += 1
        if place == len(order):
            yield chosen
            continue
        named = {entry.message_id for entry in chosen[order[place - 1]].history}
        ranked = sorted(options[order[place]], key=lambda item: item.message_id not in named)
        stack += [(place + 1, {**chosen, order[place]: item}) for item in reversed(ranked)]


def parity_choices(
    payload: IncomingPayload, latest: SegmentMessage | None
) -> Iterator[dict[int, bytes]]:
    """Yield parity segments that may stand in for the missing data segments, just enough of them."""
    missing = payload.data_count - len(payload.data)
    is_parity = latest is not None and latest.is_parity
    if not missing:
        if not is_parity:
            yield {}
        return
    shards = [
        (index, chunk)
        for index, first in payload.parity.items()
        for chunk in (first, *payload.parity_rivals.get(index, ()))
    ]
    needed: tuple[tuple[int, bytes], ...] = ()
    if latest is not None and is_parity:
        needed = ((latest.parity_segment_index, latest.payload),)
        shards = [item for item in shards if item[0] != latest.parity_segment_index]
    for rest in islice(combinations(shards, missing - len(needed)), MAX_PARITY_CHOICES):
        choice = dict((*needed, *rest))
        if len(choice) == missing:
            yield choice


def put_together(key: SetKey, data: dict[int, bytes], parity: dict[int, bytes]) -> bytes | None:
    """Return the payload that data and parity segments make, or None when its hash is another one.

    Args:
        key: What identifies the set.
        data: Chunks by data segment index; rebuilt ones are added.
        parity: Chunks by parity segment index.
    """
    if len(data) < key[3] and not rebuild(key, data, parity):
        return None
    message = data[0] if len(data) == 1 else b"".join([data[index] for index in range(len(data))])
    return message if keccak256(message) == key[1] else None


def rebuild(key: SetKey, data: dict[int, bytes], parity: dict[int, bytes]) -> bool:
    """Rebuild missing data segments from parity; say whether that was possible.

    Shards are zero-padded to the chunk for coding; the last data segment travels unpadded.
    """
    count, parity_count, code = key[3], key[4], key[6]
    chunk = max(map(len, (*data.values(), *parity.values())))
    shards = [data[index].ljust(chunk, b"\0") if index in data else None for index in range(count)]
    if code >= len(PARITY_CODES):
        return False
    try:
        rebuilt = reed_solomon.recover(
            shards, [parity.get(index) for index in range(parity_count)], PARITY_CODES[code]
        )
    except (reed_solomon.UnrecoverableError, ValueError):
        return False
    last = data.get(count - 1)
    for index in range(count):
        data.setdefault(index, rebuilt[index])
    if last is None:
        return cut_last(key, data, chunk)
    return True


def cut_last(key: SetKey, data: dict[int, bytes], chunk: int) -> bool:
    """Cut the padding off a rebuilt last segment; say whether a length was found.

    Where the sender gave no length, trailing zero bytes are cut until the hash matches.
    """
    digest, count, length = key[1], key[3], key[5]
    last_index = count - 1
    last = data[last_index]
    if length:
        data[last_index] = last[: length - last_index * chunk]
        return True
    shortest = last.rstrip(b"\0")
    head = b"".join([*(data[index] for index in range(last_index)), shortest])
    zeros = zeros_until(head, digest, len(last) - len(shortest))
    if zeros is None:
        return False
    data[last_index] = last[: len(shortest) + zeros]
    return True
