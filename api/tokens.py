"""The tokens that clients show: from a file or the environment, kept as digests, compared in constant time.

A token has one of two roles: ``read`` looks, ``write`` may do everything. Nothing here knows requests, and no text made
here holds a token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from api.secret_file import secret_lines
from api.settings import PREFIX, ServiceSettings
from reliable_channel.errors import ConfigurationError

Role = Literal["read", "write"]

ROLES: Final[tuple[Role, ...]] = ("read", "write")

TOKEN: Final = re.compile(r"[A-Za-z0-9._~+-]{16,512}")
"""What may stand in a header after ``Bearer`` as well as in the name of a WebSocket's subprotocol."""

TOKEN_RULE: Final = "a token is 16 to 512 of A-Z a-z 0-9 . _ ~ + -; openssl rand -hex 32 makes one"


class Tokens:
    """Who may do what.

    Args:
        read: Tokens that may look.
        write: Tokens that may do everything.

    Raises:
        ConfigurationError: One of them is too short, too long or holds other characters.
    """

    __slots__ = ("_roles",)

    def __init__(self, read: Iterable[str] = (), write: Iterable[str] = ()) -> None:
        self._roles: dict[bytes, Role] = {}
        for role, tokens in (("read", read), ("write", write)):
            for token in tokens:
                if not TOKEN.fullmatch(token):
                    raise ConfigurationError(TOKEN_RULE)
                self._roles[digest(token)] = "write" if role == "write" else "read"

    def __len__(self) -> int:
        """Return how many there are; none means that nobody has to show one."""
        return len(self._roles)

    def __repr__(self) -> str:
        """Return how many there are, and nothing of them."""
        return f"Tokens(<{len(self)} hidden>)"

    def role(self, token: str) -> Role | None:
        """Return what a token may do; None: nothing.

        Takes the same time whichever it is, and whether it is one at all.
        """
        shown = digest(token)
        found: Role | None = None
        for known, role in self._roles.items():
            if hmac.compare_digest(known, shown):
                found = role
        return found


def digest(token: str) -> bytes:
    """Return what a token is kept and compared as."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_tokens(path: Path | None, environ: Mapping[str, str]) -> Tokens:
    """Return the tokens of a file and of the environment together.

    Args:
        path: File with lines ``read TOKEN`` and ``write TOKEN``; None is no file.
        environ: Environment variables; ``RELIABLE_CHANNEL_READ_TOKENS`` and ``RELIABLE_CHANNEL_WRITE_TOKENS`` hold some
            each, with commas or spaces between them.

    Raises:
        ConfigurationError: The file is unusable or without tokens, or something is no token.
    """
    found: dict[str, list[str]] = {role: [] for role in ROLES}
    for number, line in [] if path is None else secret_lines(path):
        role, _, token = line.partition(" ")
        token = token.strip()
        if role not in found or not TOKEN.fullmatch(token):
            problem = f"{path}, line {number}: write 'read TOKEN' or 'write TOKEN'; {TOKEN_RULE}"
            raise ConfigurationError(problem)
        found[role].append(token)
    if path is not None and not any(found.values()):
        problem = f"{path} has no line 'read TOKEN' or 'write TOKEN'; add one, or name no file"
        raise ConfigurationError(problem)
    for role in ROLES:
        variable = f"{PREFIX}{role.upper()}_TOKENS"
        for token in environ.get(variable, "").replace(",", " ").split():
            if not TOKEN.fullmatch(token):
                problem = f"environment, {variable}: {TOKEN_RULE}"
                raise ConfigurationError(problem)
            found[role].append(token)
    return Tokens(found["read"], found["write"])


def check_exposure(settings: ServiceSettings, tokens: Tokens) -> None:
    """Do nothing if the service may listen where it is told to.

    Raises:
        ConfigurationError: Others could reach it, and nothing would keep them out.
    """
    if settings.is_loopback or tokens or settings.allow_insecure:
        return
    problem = (
        f"host {settings.host} can be reached from other machines and there are no tokens: name a --token-file, "
        "listen on 127.0.0.1, or say --allow-insecure"
    )
    raise ConfigurationError(problem)
