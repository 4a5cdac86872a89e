"""Full messages that others may ask for: which are kept, and for how long."""

from __future__ import annotations

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.archive import MessageArchive
from reliable_channel.records import BodyRecord


def make_archive(
    *, enable_repair: bool = True, max_full_messages: int = 3, max_full_bytes: int = 100
) -> MessageArchive:
    config = SdsConfig(
        enable_repair=enable_repair,
        max_full_messages=max_full_messages,
        max_full_bytes=max_full_bytes,
    )
    return MessageArchive(config, Outbox())


def rows(archive: MessageArchive) -> dict[tuple[str, str], bytes]:
    """Return the rows that the archive has written and not deleted."""
    return {
        (record.message_id, record.part): record.data
        for record in archive.outbox.effects.changes.values()
        if isinstance(record, BodyRecord)
    }


def test_a_received_message_is_kept_as_it_came_with_its_row() -> None:
    archive = make_archive()
    archive.keep_received("m1", b"bytes", in_store=True)
    found = archive.find("m1")
    assert found is not None
    assert (found.data, found.in_store) == (b"bytes", True)
    assert rows(archive) == {("m1", "message"): b"bytes"}


def test_a_message_of_ours_is_its_header_and_its_content() -> None:
    archive = make_archive()
    assert archive.keep_own("m1", b"head", b"tail")
    found = archive.find("m1")
    assert found is not None
    assert found.data == b"headtail"


def test_the_oldest_goes_when_there_are_too_many() -> None:
    archive = make_archive()
    for number in range(5):
        archive.keep_received(f"m{number}", b"x", in_store=False)
    assert list(archive.messages) == ["m2", "m3", "m4"]
    assert sorted(key[0] for key in rows(archive)) == ["m2", "m3", "m4"]


def test_the_oldest_go_when_they_are_too_large_together() -> None:
    archive = make_archive(max_full_bytes=10)
    archive.keep_received("m1", b"x" * 6, in_store=False)
    archive.keep_received("m2", b"x" * 6, in_store=False)
    assert list(archive.messages) == ["m2"]
    assert archive.octets == 6


def test_a_message_larger_than_the_bound_is_not_kept() -> None:
    archive = make_archive(max_full_bytes=10)
    archive.keep_received("m1", b"x" * 11, in_store=False)
    assert not archive.keep_own("m2", b"x" * 6, b"x" * 6)
    assert archive.octets == 0
    assert rows(archive) == {}


def test_the_same_message_counts_once() -> None:
    archive = make_archive()
    archive.keep_received("m1", b"bytes", in_store=False)
    archive.keep_received("m1", b"bytes", in_store=False)
    assert archive.octets == 5
    archive.forget(["m1", "m1", "m2"])
    assert (archive.octets, len(archive)) == (0, 0)


def test_a_copy_of_ours_that_came_back_gives_way() -> None:
    archive = make_archive()
    archive.keep_received("m1", b"bytes", in_store=False)
    assert archive.keep_own("m1", b"head", b"tail")
    assert archive.octets == 8
    assert rows(archive) == {}


def test_forgetting_deletes_the_rows() -> None:
    archive = make_archive()
    archive.keep_own("m1", b"head", b"tail")
    archive.forget(["m1"])
    assert archive.outbox.effects.changes == {
        (BodyRecord, ("m1", "header")): None,
        (BodyRecord, ("m1", "content")): None,
    }


def test_without_repair_nothing_is_kept() -> None:
    for archive in (make_archive(enable_repair=False), make_archive(max_full_messages=0)):
        archive.keep_received("m1", b"bytes", in_store=False)
        assert not archive.keep_own("m2", b"head", b"tail")
        assert len(archive) == 0
        assert rows(archive) == {}
