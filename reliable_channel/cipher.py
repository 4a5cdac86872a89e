"""The caller's encryption hook, made safe to call: plain or async, failing or answering nonsense.

Nothing ever goes out in plaintext because a hook failed. It must not choose a scheme; ``encryption`` has one ready.

Spec: RELIABLE-CHANNEL-API, Encryption.
"""

from __future__ import annotations

import asyncio
import inspect

from reliable_channel.core.segmentation import DEFAULT_ENCRYPTION_OVERHEAD
from reliable_channel.errors import ConfigurationError, EncryptError, one_line
from reliable_channel.ports import Encryption


class Cipher:
    """Encrypts and decrypts with the caller's hook, or passes bytes through where there is none.

    Args:
        encryption: The caller's, or None.

    Raises:
        ConfigurationError: It has no ``encrypt`` or ``decrypt``, or its ``overhead_bytes`` is no number of bytes.
    """

    def __init__(self, encryption: Encryption | None) -> None:
        self._encryption = encryption
        self.overhead_bytes = encryption_overhead(encryption)

    async def encrypt(self, data: bytes) -> bytes:
        """Return the encrypted bytes.

        Raises:
            EncryptError: The hook failed, or did not return bytes.
        """
        if self._encryption is None:
            return data
        try:
            result = self._encryption.encrypt(data)
            encrypted = await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            raise_when_ours()
            reason = "the hook was cancelled"
            raise EncryptError(reason) from error
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise EncryptError(reason) from error
        if not isinstance(encrypted, bytes) or not encrypted:
            found = "empty bytes" if encrypted == b"" else type(encrypted).__name__
            reason = f"the hook returned {found}, not encrypted bytes"
            raise EncryptError(reason)
        return encrypted

    async def decrypt(self, payload: bytes) -> bytes | None:
        """Return the plain bytes, or None when the hook cannot, whatever the reason."""
        if self._encryption is None:
            return payload
        try:
            result = self._encryption.decrypt(payload)
            plain = await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError:
            raise_when_ours()
            return None
        except Exception:  # whatever a hook raises means that it could not; the caller counts it
            return None
        return plain if isinstance(plain, bytes) else None


def raise_when_ours() -> None:
    """Raise again a cancellation that is meant for the running task, and not one of the hook's own making."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def encryption_overhead(encryption: Encryption | None) -> int:
    """Return how many bytes encryption adds at most; 1,024 where it does not say.

    Raises:
        ConfigurationError: The object has no ``encrypt`` or ``decrypt``, or its ``overhead_bytes`` is no number.
    """
    if encryption is None:
        return 0
    for name in ("encrypt", "decrypt"):
        if not callable(getattr(encryption, name, None)):
            text = (
                f"encryption must have a method {name}(bytes) -> bytes; "
                f"{type(encryption).__name__} has none"
            )
            raise ConfigurationError(text)
    overhead = getattr(encryption, "overhead_bytes", DEFAULT_ENCRYPTION_OVERHEAD)
    if isinstance(overhead, bool) or not isinstance(overhead, int) or overhead < 0:
        text = f"overhead_bytes must be a whole number of bytes, not {overhead!r}"
        raise ConfigurationError(text)
    return overhead
