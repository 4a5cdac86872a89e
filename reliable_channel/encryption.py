"""A ready-made encryption of channel messages under one shared key.

The protocol leaves encryption to the caller; this is one that is safe to use as it stands. It does
not exchange, derive or rotate keys, and it does not say who encrypted: whoever has the key can.

Spec: RELIABLE-CHANNEL-API, Type definitions, Encryption; NIST SP 800-38D (GCM).
"""

from __future__ import annotations

import secrets
from typing import Final

from Crypto.Cipher import AES

from reliable_channel.errors import ConfigurationError, DecryptError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
"""96 bits, the length that GCM takes as it is."""
TAG_BYTES: Final = 16


class AesGcmEncryption:
    """AES-256-GCM; each message is a fresh random nonce, the ciphertext and the tag.

    Random nonces allow 2**32 messages under one key, all participants together (NIST SP 800-38D,
    section 8.3); change the key before.

    Args:
        key: The shared key, 32 bytes, uniformly random: never a passphrase.

    Raises:
        ConfigurationError: The key is not 32 bytes.
    """

    __slots__ = ("_key",)

    overhead_bytes: Final = NONCE_BYTES + TAG_BYTES
    """How much longer than its input the output of `encrypt` is."""

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            problem = f"key must be {KEY_BYTES} bytes; AesGcmEncryption.generate_key() makes one"
            raise ConfigurationError(problem)
        self._key = key

    @staticmethod
    def generate_key() -> bytes:
        """Return a new random key for the participants of a channel to share."""
        return secrets.token_bytes(KEY_BYTES)

    def __repr__(self) -> str:
        """Return a text without the key: it may end up in a log."""
        return "AesGcmEncryption(<key hidden>)"

    def encrypt(self, content: bytes, /) -> bytes:
        """Return nonce, ciphertext and tag; equal contents give different bytes each time."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce, mac_len=TAG_BYTES)
        ciphertext, tag = cipher.encrypt_and_digest(content)
        return b"".join((nonce, ciphertext, tag))

    def decrypt(self, payload: bytes, /) -> bytes:
        """Return the content, only after the tag has proved every byte of it.

        Raises:
            DecryptError: Encrypted under another key, altered, or too short to be encrypted at all.
        """
        if len(payload) < self.overhead_bytes:
            problem = f"{len(payload)} bytes are too few for nonce and tag"
            raise DecryptError(problem)
        nonce = payload[:NONCE_BYTES]
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce, mac_len=TAG_BYTES)
        try:
            return cipher.decrypt_and_verify(payload[NONCE_BYTES:-TAG_BYTES], payload[-TAG_BYTES:])
        except ValueError as error:
            problem = "another key or altered bytes"
            raise DecryptError(problem) from error
