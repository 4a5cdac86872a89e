"""Whether a path still names the file that was opened there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.opened_file import OpenedFile
from reliable_channel.errors import StoreUnavailableError


def do_nothing(path: Path) -> None:
    pass


def write_to(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def move_away_and_back(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.with_suffix(".away").rename(path)


def link_to(path: Path) -> None:
    os.link(path, path.with_suffix(".link"))


def copy_over(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def move_folder_away(path: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("happens", "is_there"),
    [
        (do_nothing, True),
        (write_to, True),
        (move_away_and_back, True),
        (link_to, True),
        (copy_over, False),
        (Path.unlink, False),
        (move_folder_away, False),
        (become_a_folder, False),
    ],
)
def test_what_is_at_the_path_is_the_file_or_not(
    tmp_path: Path, happens: Callable[[Path], None], *, is_there: bool
) -> None:
    path = tmp_path / "folder" / "a.db"
    path.parent.mkdir()
    path.write_bytes(b"contents")
    with path.open("rb") as kept_open:  # or a new file might get its number
        opened = OpenedFile.at(str(path))
        assert opened == OpenedFile.of(str(path), os.fstat(kept_open.fileno()))
        happens(path)
        assert opened.is_there() == is_there
        if is_there:
            opened.check()
            return
        with pytest.raises(StoreUnavailableError, match=r"a\.db was replaced or removed") as error:
            opened.check()
        assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"none: cannot be looked at: No such file"):
        OpenedFile.at(f"{tmp_path}/none")
