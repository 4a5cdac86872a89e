"""The helper that drives the JavaScript peer says what went wrong, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.builders import ALICE, CHANNEL, NOW
from tests.support.js_peer import JsPeer, JsPeerError

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]


@pytest.fixture
def peer() -> Iterator[JsPeer]:
    """Start a peer."""
    with JsPeer(ALICE, CHANNEL, NOW) as started:
        yield started


def test_the_process_ends_by_itself_when_the_helper_is_closed() -> None:
    with JsPeer(ALICE, CHANNEL, NOW) as peer:
        assert peer.process.poll() is None
    assert peer.process.returncode == 0


def test_a_command_that_fails_raises_and_the_process_goes_on(peer: JsPeer) -> None:
    with pytest.raises(JsPeerError, match=r"'receive' failed: .*not an SDS message"):
        peer.receive(b"\xff", NOW)
    assert len(peer.send(b"payload", NOW)) == 1


def test_a_process_that_has_ended_is_reported(peer: JsPeer) -> None:
    peer.process.kill()
    with pytest.raises(JsPeerError, match="no answer to 'sync'"):
        peer.sync(NOW)
