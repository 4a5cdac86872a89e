"""What is leased with a ledger."""

from __future__ import annotations

import pytest

from reliable_channel.store import lease_of


@pytest.mark.parametrize(
    ("scope", "lease"),
    [
        ("node:600", "node"),
        ("node:601", "node"),
        ("node", "node"),
        ("nodes:600", "nodes:600"),
        ("channel:room:600", "channel:room:600"),
        ("channel:node:600", "channel:node:600"),
        ("odd", "odd"),
    ],
)
def test_ledgers_of_nodes_are_leased_together(scope: str, lease: str) -> None:
    assert lease_of(scope) == lease
