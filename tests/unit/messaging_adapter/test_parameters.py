"""Parameters of transports' URLs."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from messaging_adapter.parameters import read_parameters
from reliable_channel import ConfigurationError

READERS = {"share": float, "seed": int, "way": str}


def test_values_are_read_and_what_is_not_given_is_not_there() -> None:
    parts = urlsplit("lab://x?share=0.5&way=")
    assert read_parameters(parts, READERS) == {"share": 0.5, "way": ""}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("speed=1", "lab:// has no parameter 'speed'; it has share, seed, way"),
        ("seed=1&seed=2", "seed is given twice"),
        ("seed=1.5", "seed must be a whole number, not '1.5'"),
        ("share=half", "share must be a number, not 'half'"),
    ],
)
def test_what_is_wrong_is_said(query: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_parameters(urlsplit(f"lab://x?{query}"), READERS)
    assert str(caught.value) == problem


def test_all_problems_are_said_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_parameters(urlsplit("lab://x?seed=a&speed=1"), READERS)
    assert "seed must" in str(caught.value)
    assert "'speed'" in str(caught.value)
