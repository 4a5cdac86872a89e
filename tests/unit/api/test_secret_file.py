"""Files with secrets: what they say, who may read them, what an error tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.secret_file import MAX_BYTES, secret_lines
from reliable_channel.errors import ConfigurationError


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "secrets"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_lines_have_numbers_and_comments_are_left_out(tmp_path: Path) -> None:
    path = secret_file(tmp_path, b"# who\n\n one \r\n\t# more\ntwo # not a comment\n")
    assert list(secret_lines(path)) == [(3, "one"), (5, "two # not a comment")]


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_owner_and_group_may_read(tmp_path: Path, mode: int) -> None:
    assert list(secret_lines(secret_file(tmp_path, b"one", mode))) == [(1, "one")]


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666, 0o444])
def test_a_file_that_is_open_to_everybody_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path, b"one", mode)
    with pytest.raises(ConfigurationError, match=f"chmod 600 {path}"):
        list(secret_lines(path))


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"hidden \xff", "not UTF-8"), (b"hidden\n" * (MAX_BYTES // 7 + 1), "longer than")],
)
def test_errors_do_not_quote_the_file(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        list(secret_lines(secret_file(tmp_path, content)))
    assert "hidden" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read: ") as caught:
            list(secret_lines(path))
        assert "\n" not in str(caught.value)
