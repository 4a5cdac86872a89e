"""Vectors recorded from `@waku/sds`, read from their file; `tests/interop/vectors/README.md` describes them."""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Any, Final, TypeAlias

Record: TypeAlias = dict[str, Any]

VECTORS: Final = json.loads(
    (Path(__file__).parents[1] / "interop" / "vectors" / "sds_js.json").read_text(encoding="utf-8")
)


def blob(value: str | Record) -> bytes:
    """Return the bytes of a recorded blob; large ones are compressed."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    data = zlib.decompress(b64decode(value["zlib_b64"]))
    assert hashlib.sha256(data).hexdigest() == value["sha256"]
    return data


def optional_blob(value: str | Record | None) -> bytes | None:
    """Return the bytes of a blob that may be absent."""
    return None if value is None else blob(value)
