"""The measurement runs the real machine and tells when it does not deliver."""

from __future__ import annotations

from benchmarks import machine_speed


def test_every_message_that_is_measured_is_delivered() -> None:
    speed = machine_speed.measure(20, payload_bytes=64)
    assert speed.messages == 20
    assert speed.sent_per_second > 0
    assert speed.received_per_second > 0
    assert speed.peak_bytes > 1 << 20


def test_the_floor_is_measured_with_messages_that_decode() -> None:
    speed = machine_speed.measure_floor(20, payload_bytes=64)
    assert speed.messages == 20
    assert speed.sent_per_second > 0
    assert speed.received_per_second > 0
