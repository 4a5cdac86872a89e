"""What the segments of a complete set make: the payload, or nothing.

Anybody can make a segment that fits a set, so some of those held may be forged. They are tried in *patterns*: a chain
of data segments whose histories name each other, and a window of the parity. It must not change a set that makes
nothing, but for what was tried: another segment may still complete it.

Spec: LIP-243 (Segmentation), Reassembly, Integrity; docs/adr/0013-what-a-stranger-may-not-do.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reliable_channel.core import reed_solomon
from reliable_channel.core.hashing import keccak256, zeros_until
from reliable_channel.core.payload import Candidate, IncomingPayload, SetKey
from reliable_channel.core.segmentation import PARITY_CODES, chunk_of
from reliable_channel.core.wire import SegmentMessage

MAX_ASSEMBLIES: Final = 32
"""Times that one received segment may have a payload put together and hashed, where that costs little."""

MAX_WORK: Final = 80 << 20
"""Work that one received segment may cause, but for the first time, in bytes hashed (about 2 ns each)."""

MAX_PATTERNS: Final = 64
"""Patterns that one received segment may have looked at, also those that were tried before."""

MAX_TRIED: Final = 256
"""Patterns of a set that are remembered as tried."""

SHUFFLE_PRIME: Final = 1_021
"""More than there are parity segments of a set: multiples of a place modulo it put them in another order."""

SHUFFLE_STEP: Final = 389
"""What a place is multiplied with besides the turn, so that neighbours part at once."""

LINK_ENTRIES: Final = 16
"""Last entries of a history among which the segments before are looked for."""

Pattern: TypeAlias = tuple[dict[int, Candidate], dict[int, bytes]]
"""Data candidates by index and parity chunks by index, as many together as there is data."""


@dataclass(slots=True)
class Group:
    """Segments of a set that may belong together: all non-last data and all parity of a payload have one size.

    Attributes:
        size: Of a chunk, bytes.
        options: Candidates by data index, highest first.
        parity: Index and chunk of each parity segment.
    """

    size: int
    options: dict[int, list[Candidate]] = field(default_factory=dict)
    parity: list[tuple[int, bytes]] = field(default_factory=list)

    def spare(self, count: int) -> int:
        """Return how many more segments there are than that many; negative when there are too few."""
        return len(self.options) + len({index for index, _ in self.parity}) - count


def assemble(payload: IncomingPayload, latest: SegmentMessage | None = None) -> bytes | None:
    """Return the payload that the segments of a complete set make, or None when they make no such payload.

    Missing data segments are rebuilt from parity and put into ``payload.data``; of several candidates the right ones
    come first afterwards. The hash is always checked. Where it does not match, the set is as before.

    Args:
        payload: A complete set.
        latest: The segment it was given last: those of its size are tried first.

    At most ``MAX_ASSEMBLIES`` patterns are tried, and beyond the first no more than ``MAX_WORK``.
    """
    size = plain_size(payload)
    if size:
        message = put_together(payload.key, payload.data, {}, size)
        if message is not None:
            payload.chunk_bytes = size
            return message
    work = 0
    for group in groups(payload, latest):
        for chosen, parity in untried(payload, group):
            cost = work_of(payload.data_count, len(parity), group.size)
            if work and work + cost > MAX_WORK:
                return None
            work += cost
            data = {index: item.chunk for index, item in chosen.items()}
            message = put_together(payload.key, data, parity, group.size)
            if message is not None:
                payload.settle(data, chosen, parity, group.size)
                return message
            payload.failures += 1
    return None


def plain_size(payload: IncomingPayload) -> int:
    """Return the chunk's bytes of a set whose only pattern is all of its data segments; 0 where there may be others.

    Of almost every payload without parity each segment came once, and there is nothing to choose.
    """
    data, count = payload.data, payload.data_count
    if payload.parity or payload.rivals or payload.failures or not 1 < count == len(data):
        return 0
    size, end = len(data[0]), len(data[count - 1])
    # The last one tells the chunk, or is no longer than it.
    told = chunk_of(count, payload.key.payload_bytes, count - 1, end)
    if told != size if told else end > size:
        return 0
    sizes = {len(data[index]) for index in range(count - 1)}
    return size if len(sizes) == 1 else 0


def work_of(count: int, missing: int, size: int) -> int:
    """Return what putting a payload together costs, in bytes hashed: hash, parity, and the matrix to invert."""
    cost = count * size * (8 + missing) // 8 + 1024 * count * missing
    return max(cost, MAX_WORK // MAX_ASSEMBLIES)


def groups(payload: IncomingPayload, latest: SegmentMessage | None) -> list[Group]:
    """Return the groups that have enough segments, that of the latest one first, then the largest ones."""
    found: dict[int, Group] = {}
    ends: list[Candidate] = []
    for index in sorted(payload.data, reverse=True):
        for item in payload.candidates(index):
            size = chunk_of(payload.data_count, payload.key.payload_bytes, index, len(item.chunk))
            if size:
                group = found.setdefault(size, Group(size))
                group.options.setdefault(index, []).append(item)
            else:
                ends.append(item)
    for index, first in payload.parity.items():
        for chunk in (first, *payload.parity_rivals.get(index, ())):
            found.setdefault(len(chunk), Group(len(chunk))).parity.append((index, chunk))
    for group in found.values():
        fitting = [item for item in ends if len(item.chunk) <= group.size]
        if fitting:
            group.options = {payload.data_count - 1: fitting, **group.options}
    newest = 0
    if latest is not None:
        place = None if latest.is_parity else latest.data_segment_index
        newest = chunk_of(payload.data_count, payload.key.payload_bytes, place, len(latest.payload))
    complete = [item for item in found.values() if item.spare(payload.data_count) >= 0]
    return sorted(complete, key=lambda item: (item.size != newest, -len(item.options)))


def untried(payload: IncomingPayload, group: Group) -> Iterator[Pattern]:
    """Yield patterns of a group that were not tried before.

    First those with the lowest numbers, of which a new segment makes others than before; then more of them, from where
    the last call ended.
    """
    further = max(payload.looked, MAX_PATTERNS)
    for number in (*range(MAX_PATTERNS), *range(further, further + MAX_PATTERNS)):
        chosen, parity = pattern(group, payload.data_count, number)
        mark = hash((*chosen, *(item.chunk for item in chosen.values()), *sorted(parity.items())))
        if chosen and mark not in payload.tried:
            yield chosen, parity
            if len(payload.tried) >= MAX_TRIED:
                payload.tried.clear()
            payload.tried.add(mark)
        payload.looked = max(payload.looked, number + 1)


def pattern(group: Group, count: int, number: int) -> Pattern:
    """Return one of the patterns of a group, in an order in which a few in a row leave out any one forged segment.

    Args:
        group: With enough segments.
        count: Data segments of the payload.
        number: Which pattern, from 0 on; every fourth one may leave out data that nothing vouches for.
    """
    rounds, place = divmod(number, 4)
    leave_out = place == 3
    number = rounds if leave_out else number - rounds
    chosen, choices = follow(group, group.spare(count), number, leave_out=leave_out)
    missing, held = count - len(chosen), len(group.parity)
    step = max(1, held - missing)
    turn, place = divmod(number + number // (choices * max(1, held)), -(-held // step) or 1)
    shards = group.parity
    if turn:
        places = sorted(range(held), key=lambda item: item * turn * SHUFFLE_STEP % SHUFFLE_PRIME)
        shards = [shards[item] for item in places]
    parity: dict[int, bytes] = {}
    place *= step
    while len(parity) < missing:
        parity.setdefault(*shards[place % held])
        place += 1
    return chosen, parity


def follow(
    group: Group, spare: int, number: int, *, leave_out: bool
) -> tuple[dict[int, Candidate], int]:
    """Return a chain of candidates from the last index down, and how many there were to choose from.

    A sender fixes the histories of a payload's segments in one step, so each of them names the one or two before it.
    Where no candidate is named, a digit of the number decides. Where parity can do without them, none is an answer
    too: the first one where the segment above is there and names another one, if this sender's histories do so at all.

    Args:
        group: What there is.
        spare: So many indices may be left out.
        number: Which chain.
        leave_out: None is an answer in any case.
    """
    chosen: dict[int, Candidate] = {}
    named: set[str] = set()
    is_linked, total = False, 1
    for index, held in group.options.items():
        item = next((item for item in held if item.message_id in named), None)
        if item is None:
            choices: list[Candidate | None] = [*held]
            if spare and is_linked and index + 1 in chosen:
                choices.insert(0, None)
            elif spare and leave_out:
                choices.append(None)
            item = choices[number // total % len(choices)]
            total *= len(choices)
        else:
            is_linked = True
        if item is None:
            spare -= 1
        else:
            chosen[index] = item
            named.update([entry.message_id for entry in item.history[-LINK_ENTRIES:]])
    return chosen, total


def put_together(
    key: SetKey, data: dict[int, bytes], parity: dict[int, bytes], size: int
) -> bytes | None:
    """Return the payload that data and parity segments make, or None when its hash is another one.

    Args:
        key: What identifies the set.
        data: Chunks by data segment index; rebuilt ones are added.
        parity: Chunks by parity segment index.
        size: Of a chunk, bytes.
    """
    if len(data) < key.data_count and not rebuild(key, data, parity, size):
        return None
    message = b"".join([data[index] for index in range(len(data))])
    return message if keccak256(message) == key.payload_hash else None


def rebuild(key: SetKey, data: dict[int, bytes], parity: dict[int, bytes], size: int) -> bool:
    """Rebuild missing data segments from parity; say whether that was possible.

    Shards are zero-padded to the chunk for coding; the last data segment travels unpadded.
    """
    count, parity_count, code = key.data_count, key.parity_count, key.parity_code
    if code >= len(PARITY_CODES):
        return False
    shards = [data[index].ljust(size, b"\0") if index in data else None for index in range(count)]
    try:
        rebuilt = reed_solomon.recover(
            shards, [parity.get(index) for index in range(parity_count)], PARITY_CODES[code]
        )
    except (reed_solomon.UnrecoverableError, ValueError):
        return False
    is_last_there = count - 1 in data
    for index in range(count):
        data.setdefault(index, rebuilt[index])
    return is_last_there or cut_last(key, data)


def cut_last(key: SetKey, data: dict[int, bytes]) -> bool:
    """Cut the padding off a rebuilt last segment; say whether a length was found.

    Where the sender gave no length, trailing zero bytes are cut until the hash matches.
    """
    digest, last_index, length = key.payload_hash, key.data_count - 1, key.payload_bytes
    last = data[last_index]
    if length:
        data[last_index] = last[: length - last_index * len(last)]
        return True
    shortest = last.rstrip(b"\0")
    head = b"".join([*(data[index] for index in range(last_index)), shortest])
    zeros = zeros_until(head, digest, len(last) - len(shortest))
    if zeros is None:
        return False
    data[last_index] = last[: len(shortest) + zeros]
    return True
