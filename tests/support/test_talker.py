"""The notebook and the numbered messages of tests."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.talker import Notebook, number_of, payload_of


def test_a_notebook_goes_on_after_a_line_that_was_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with closing(Notebook(path)) as notes:
        notes.add("sent", 1, "a")
        notes.add("begun", 2)
    with path.open("ab") as file:
        file.write(b'["sent", 2')
    with closing(Notebook(path)) as notes:
        notes.add("sent", 3, "c")
    with closing(Notebook(path)) as notes:
        assert notes.of("sent") == [[1, "a"], [3, "c"]]
        assert notes.of("begun") == [[2]]


@pytest.mark.parametrize("number", [1, 2, 30])
def test_a_message_is_known_by_every_byte_of_it(number: int) -> None:
    payload = payload_of("alice", number)
    assert number_of("alice", payload) == number
    assert number_of("bob", payload) == -1
    assert number_of("alice", payload[:-1]) == -1
    assert number_of("alice", payload[:-1] + bytes([payload[-1] ^ 1])) == -1
