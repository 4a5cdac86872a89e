"""The reference encryption: its layout, and that nothing inauthentic comes out of it."""

from __future__ import annotations

import pytest

from reliable_channel.encryption import AesGcmEncryption
from reliable_channel.errors import ConfigurationError, DecryptError

KEY = bytes(range(32))
CONTENT = b"attack at dawn"


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, b"c" * 102_400])
def test_decrypting_gives_back_what_was_encrypted(content: bytes) -> None:
    encryption = AesGcmEncryption(KEY)
    payload = encryption.encrypt(content)
    assert AesGcmEncryption(KEY).decrypt(payload) == content
    assert len(payload) == len(content) + encryption.overhead_bytes


def test_overhead_is_nonce_and_tag() -> None:
    assert AesGcmEncryption.overhead_bytes == 28


@pytest.mark.parametrize(
    ("ciphertext", "tag", "content"),
    [
        pytest.param("", "530f8afbc74536b9a963b4f1c4cb738b", b"", id="case 13"),
        pytest.param(
            "cea7403d4d606b6e074ec5d3baf39d18",
            "d0d1c8a799996bf0265b98b5d48ab919",
            bytes(16),
            id="case 14",
        ),
    ],
)
def test_payload_is_nonce_ciphertext_and_tag_of_aes_256_gcm(
    ciphertext: str, tag: str, content: bytes
) -> None:
    """Test cases of the GCM specification: key and nonce are all zeros."""
    payload = bytes(12) + bytes.fromhex(ciphertext) + bytes.fromhex(tag)
    assert AesGcmEncryption(bytes(32)).decrypt(payload) == content


def test_equal_contents_are_encrypted_under_different_nonces() -> None:
    encryption = AesGcmEncryption(KEY)
    payloads = [encryption.encrypt(CONTENT) for _ in range(100)]
    assert len({payload[:12] for payload in payloads}) == 100
    assert len({payload[12:] for payload in payloads}) == 100


def test_payload_shows_nothing_of_the_content() -> None:
    assert CONTENT not in AesGcmEncryption(KEY).encrypt(CONTENT)


def test_every_flipped_bit_is_noticed() -> None:
    encryption = AesGcmEncryption(KEY)
    payload = encryption.encrypt(b"x")
    for index in range(len(payload) * 8):
        altered = bytearray(payload)
        altered[index // 8] ^= 1 << index % 8
        with pytest.raises(DecryptError):
            encryption.decrypt(bytes(altered))


def test_truncated_and_extended_payloads_are_refused() -> None:
    encryption = AesGcmEncryption(KEY)
    payload = encryption.encrypt(CONTENT)
    for length in range(len(payload)):
        with pytest.raises(DecryptError):
            encryption.decrypt(payload[:length])
    with pytest.raises(DecryptError):
        encryption.decrypt(payload + b"\x00")


def test_another_key_does_not_decrypt() -> None:
    payload = AesGcmEncryption(KEY).encrypt(CONTENT)
    with pytest.raises(DecryptError, match="another key"):
        AesGcmEncryption(bytes(32)).decrypt(payload)


@pytest.mark.parametrize(
    "key",
    [b"", bytes(16), bytes(24), bytes(31), bytes(33), "k" * 32],
    ids=lambda key: f"{key!r:.8}{len(key)}",
)
def test_key_of_another_length_or_type_is_refused(key: bytes) -> None:
    with pytest.raises(ConfigurationError, match="32 bytes"):
        AesGcmEncryption(key)


def test_generated_keys_are_usable_and_differ() -> None:
    keys = {AesGcmEncryption.generate_key() for _ in range(10)}
    assert len(keys) == 10
    for key in keys:
        assert AesGcmEncryption(key).decrypt(AesGcmEncryption(key).encrypt(CONTENT)) == CONTENT


def test_text_form_shows_no_key() -> None:
    key = b"0123456789abcdef0123456789ABCDEF"
    text = repr(AesGcmEncryption(key))
    assert key.decode() not in text
    assert key.hex() not in text
    assert not hasattr(AesGcmEncryption(key), "__dict__")
