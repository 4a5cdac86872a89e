"""That the crowd notices what must not be."""

from __future__ import annotations

import pytest

from tests.support.crowd import Ledger, Log, payload_of

SENT = ("reliable:message:sent", "a", None)


def test_a_repeat_with_another_id_is_noticed() -> None:
    ledger = Ledger()
    ledger.accept("key", "a")
    ledger.accept("key", "a")
    with pytest.raises(AssertionError):
        ledger.accept("key", "b")


@pytest.mark.parametrize(
    ("sequence", "entry"), [(1, ("reliable:message:sent", "b", None)), (3, SENT)]
)
def test_another_order_and_a_gap_are_noticed(
    sequence: int, entry: tuple[str, str | None, str | None]
) -> None:
    log = Log()
    log.saw(1, SENT)
    log.saw(1, SENT)
    with pytest.raises(AssertionError):
        log.saw(sequence, entry)


def test_a_key_has_one_message() -> None:
    assert payload_of("a-1") == payload_of("a-1")
    assert payload_of("a-1").startswith(b"a-1")
