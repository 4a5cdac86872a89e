"""Log lines: one each, whatever they hold; both forms; levels; others' loggers."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest

from api.logs import NEEDLESS, TALKATIVE, configure_logging, printable


@pytest.fixture(autouse=True)
def keep_loggers() -> Iterator[None]:
    loggers = [logging.getLogger(), *map(logging.getLogger, TALKATIVE)]
    before = [(item, item.level, item.handlers[:], item.propagate) for item in loggers]
    yield
    for item, level, handlers, propagate in before:
        item.setLevel(level)
        item.handlers[:] = handlers
        item.propagate = propagate
        item.filters.clear()


def log_to(log_format: Literal["text", "json"], level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, log_format, stream)
    return stream


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 名", "plain é 名"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x00\x7f", r"\x1b[31mred\x00\x7f"),
        ("\u202egnp.exe\u2028", r"\u202egnp.exe\u2028"),
        ("\ud800", r"\ud800"),
        ("x" * 11, "x" * 10 + "…"),
    ],
)
def test_texts_become_one_line(text: str, shown: str) -> None:
    assert printable(text, 10 if text[0] == "x" else 100) == shown


def test_text_lines() -> None:
    stream = log_to("text")
    logging.getLogger("reliable_channel.x").info("sent %s", "a\nb")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO reliable_channel\.x: sent a\\nb\n", line
    )


def test_json_lines() -> None:
    stream = log_to("json")
    logging.getLogger("reliable_channel.x").warning(
        "sent %s", "a\nb", extra={"fields": {"status": 404}}
    )
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert re.fullmatch(r"[-\dT:.]{23}Z", fields.pop("time"))
    assert fields == {
        "level": "warning",
        "logger": "reliable_channel.x",
        "message": "sent a\\nb",
        "status": 404,
    }


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("reliable_channel.x").exception("it failed")


def test_no_line_of_a_traceback_looks_like_a_message() -> None:
    stream = log_to("text")
    fail("one\n2026-01-01T00:00:00.000Z INFO forged: line")
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("ERROR reliable_channel.x: it failed")
    assert others
    assert all(line.startswith("    ") for line in others)


def test_a_traceback_in_json_is_in_the_same_line() -> None:
    stream = log_to("json")
    fail("one\ntwo")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: one\ntwo" in json.loads(line)["traceback"]


@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [("debug", 4, 4), ("info", 3, 2), ("warning", 2, 2), ("error", 1, 1)],
)
def test_levels(level: str, ours: int, others: int) -> None:
    for name, expected in (("reliable_channel.x", ours), ("uvicorn.error", others)):
        stream = log_to("text", level)
        for method in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), method)("said")
        assert len(stream.getvalue().splitlines()) == expected, name


def test_lines_of_others_come_once_and_in_our_form() -> None:
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(io.StringIO()))
    logging.getLogger("uvicorn").propagate = False
    stream = log_to("json")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["logger"] == "uvicorn.error"


def test_what_uvicorn_says_of_refused_sockets_is_left_out() -> None:
    stream = log_to("text")
    logging.getLogger("uvicorn.error").error(NEEDLESS)
    logging.getLogger("uvicorn.error").error("another")
    assert stream.getvalue().splitlines()[0].endswith("another")


def test_configuring_twice_writes_once() -> None:
    log_to("text")
    stream = log_to("text")
    logging.getLogger("reliable_channel.x").error("said")
    assert len(stream.getvalue().splitlines()) == 1
