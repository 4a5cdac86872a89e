"""Log lines of the service: on standard error, as text or JSON, one line each.

Everything goes through one handler, uvicorn's own loggers too. What a line says may come from a request: control
characters are escaped here, whoever logs. Nothing here may decide what is logged but its level.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

TALKATIVE: Final = (
    "uvicorn",
    "uvicorn.error",
    "uvicorn.access",
    "asyncio",
    "httpcore",
    "httpx",
    "alembic",
    "sqlalchemy",
)
"""Loggers of others that say at ``info`` what nobody asks for; below ``debug`` only their warnings are written."""

MAX_TEXT: Final = 2_000
"""Characters of one message that are written."""


NEEDLESS: Final = "ASGI callable returned without completing handshake."
"""uvicorn says so of every WebSocket that is refused with a document; the request log has a line for it."""


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text as one line: what is no printable character is escaped, what is too long cut off."""
    if len(text) > limit:
        text = text[:limit] + "…"
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


class TextFormatter(logging.Formatter):
    """``TIME LEVEL LOGGER: MESSAGE``; the lines of a traceback are indented, so that none looks like a message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and its traceback below."""
        line = (
            f"{moment(record)} {record.levelname} {record.name}: {printable(record.getMessage())}"
        )
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    {printable(part)}" for part in trace.splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what a line has besides."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        fields: dict[str, Any] = {
            "time": moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def moment(record: logging.LogRecord) -> str:
    """Return when a record was made: UTC, to the millisecond."""
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_needed(record: logging.LogRecord) -> bool:
    """Say whether a line of others tells something that no line of ours does."""
    return record.msg != NEEDLESS


def configure_logging(
    level: str, log_format: Literal["text", "json"], stream: TextIO | None = None
) -> None:
    """Send all log lines of the process to one place, in one form.

    Args:
        level: Least severe that is written: debug, info, warning or error.
        log_format: For people or for programs.
        stream: Where to; None is standard error.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.filters[:] = [is_needed]
        logger.propagate = True
        quiet = max(logging.WARNING, root.level) if level != "debug" else logging.NOTSET
        logger.setLevel(quiet)
