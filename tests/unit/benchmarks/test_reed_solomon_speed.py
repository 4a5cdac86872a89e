"""What is timed gives the data back; zfec takes part where it is installed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import reed_solomon_speed
from benchmarks.reed_solomon_speed import Shape
from reliable_channel.core.reed_solomon import encode_parity

TINY = Shape(5, 2, 64)


class FakePeer:
    """Codes with the code of ours, which any k of k + m shards satisfy too."""

    def __init__(self, count: int, total: int) -> None:
        self.count, self.total = count, total

    def encode(self, shards: list[bytes], wanted: list[int]) -> list[bytes]:
        assert wanted == list(range(self.count, self.total))
        return encode_parity(shards, len(wanted), "reedsolo")

    def decode(self, held: list[bytes], numbers: list[int]) -> list[bytes]:
        assert len(held) == len(numbers) == self.count
        assert numbers == [0, 1, 2, 5, 6]
        return reed_solomon_speed.random_shards(TINY)


class BrokenPeer(FakePeer):
    def decode(self, held: list[bytes], numbers: list[int]) -> list[bytes]:
        return held


def test_both_operations_are_measured_beside_the_peer() -> None:
    peer = SimpleNamespace(Encoder=FakePeer, Decoder=FakePeer)
    speeds = reed_solomon_speed.measure(TINY, peer=peer, rounds=1, least_seconds=0, columns=2)
    assert [speed.operation for speed in speeds] == ["encode", "decode"]
    for speed in speeds:
        assert set(speed.seconds) == {"zfec", "reedsolo", "leopard"}
        assert speed.library_rate > 0
        ours = list(reed_solomon_speed.figures(speed))
        assert [item.ratio is not None for item in ours] == [True, True, False]


def test_without_the_peer_there_are_no_ratios() -> None:
    speeds = reed_solomon_speed.measure(TINY, peer=None, rounds=1, least_seconds=0, columns=2)
    assert all(set(speed.seconds) == {"reedsolo", "leopard"} for speed in speeds)
    assert all(item.ratio is None for speed in speeds for item in reed_solomon_speed.figures(speed))


@pytest.mark.parametrize("is_there", [True, False])
def test_the_table_says_how_to_get_a_peer_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    peer = SimpleNamespace(Encoder=FakePeer, Decoder=FakePeer) if is_there else None
    monkeypatch.setattr(reed_solomon_speed, "peer_library", lambda: peer)
    monkeypatch.setattr(reed_solomon_speed, "SHAPES", (TINY,))
    (table,) = reed_solomon_speed.tables()
    assert isinstance(table, reed_solomon_speed.Table)
    assert len(table.figures) == 6
    assert (reed_solomon_speed.INSTALL_PEER in table.notes) is not is_there


def test_the_harm_table_leaves_out_what_a_code_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reed_solomon_speed, "HOSTILE_SHAPES", (Shape(128, 128, 64),))
    (table,) = reed_solomon_speed.harm_tables()
    assert isinstance(table, reed_solomon_speed.Table)
    names = [item.name for item in table.figures]
    assert [name.rpartition(" leopard: ")[2] for name in names] == ["with a length", "without"]


def test_a_peer_that_gives_something_else_is_not_timed() -> None:
    peer = SimpleNamespace(Encoder=BrokenPeer, Decoder=BrokenPeer)
    with pytest.raises(RuntimeError, match="zfec did not give the data back"):
        reed_solomon_speed.measure(TINY, peer=peer, rounds=1, least_seconds=0, columns=2)


def test_the_peer_itself_gives_the_data_back() -> None:
    peer = reed_solomon_speed.peer_library()
    if peer is None:
        pytest.skip(reed_solomon_speed.INSTALL_PEER)
    works = reed_solomon_speed.peer_works(peer, reed_solomon_speed.random_shards(TINY), 2)
    assert set(works) == {"encode", "decode"}


def test_our_decoding_rebuilds_as_many_shards_as_there_is_parity() -> None:
    shards = reed_solomon_speed.random_shards(TINY)
    works = reed_solomon_speed.our_works(shards, 2, "leopard")
    rebuilt = works["decode"]()
    assert rebuilt == shards
    assert [got is given for got, given in zip(rebuilt, shards, strict=True)] == [
        *([True] * 3),
        *([False] * 2),
    ]


def test_the_library_gives_each_column_back() -> None:
    shards = [shard[:3] for shard in reed_solomon_speed.random_shards(TINY)]
    works = reed_solomon_speed.library_works(shards, 2)
    assert works["decode"]() == [bytes(column) for column in zip(*shards, strict=True)]


@pytest.mark.parametrize("shape", [Shape(3, 3, 64), Shape(12, 4, 128)])
@pytest.mark.parametrize("code", reed_solomon_speed.CODES)
def test_what_a_stranger_completes_has_its_cost(shape: Shape, code: str) -> None:
    harm = reed_solomon_speed.measure_harm(shape, code)
    assert harm.seconds > 0
    assert harm.unsized_seconds > 0


def test_shapes_read_as_they_are_written() -> None:
    assert str(Shape(8, 1, 102_400)) == "(8, 1, 100 KiB)"
    assert str(Shape(128, 128, 64)) == "(128, 128, 64 B)"
