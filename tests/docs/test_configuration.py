"""docs/configuration.md says what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from annotated_types import Ge, Le

from api.settings import ServiceSettings
from messaging_adapter.rest_url import BOUNDS as REST_BOUNDS
from messaging_adapter.rest_url import CHOICES, RestParameters
from reliable_channel.config import (
    RATE_LIMIT_BOUNDS,
    SDS_BOUNDS,
    SEGMENTATION_BOUNDS,
    Bounds,
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
)

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>.*?) \| (?P<low>.*?) \| (?P<high>.*?) \|")


def shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"`{value}`" if isinstance(value, str) else repr(value)


def rows_of_section(title: str) -> list[tuple[str, ...]]:
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return [match.groups() for line in section.splitlines() if (match := ROW.match(line))]


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (SdsConfig, SDS_BOUNDS),
        (SegmentationConfig, SEGMENTATION_BOUNDS),
        (RateLimitConfig, RATE_LIMIT_BOUNDS),
    ],
)
def test_the_table_names_every_field_with_its_default_and_bounds(
    kind: type[SdsConfig | SegmentationConfig | RateLimitConfig], bounds: Bounds
) -> None:
    expected = [
        (item.name, shown(item.default), *map(shown, bounds[item.name]))
        if item.name in bounds
        else (item.name, shown(item.default), "", "")
        for item in dataclasses.fields(kind)
    ]
    assert rows_of_section(kind.__name__) == expected


def test_the_table_of_a_rest_node_names_every_parameter_with_its_default_and_bounds() -> None:
    expected = [
        (item.name, shown(item.default), *map(shown, REST_BOUNDS[item.name]))
        if item.name in REST_BOUNDS
        else (item.name, shown(item.default), "", "")
        for item in dataclasses.fields(RestParameters)
        if item.name in {*REST_BOUNDS, *CHOICES}
    ]
    assert rows_of_section("`waku+http://HOST:PORT?…`") == expected


def service_rows() -> list[tuple[str, ...]]:
    """Return the rows of the service's settings, as the page is to have them."""
    rows = []
    for name, item in ServiceSettings.model_fields.items():
        low = next((mark.ge for mark in item.metadata if isinstance(mark, Ge)), "")
        high = next((mark.le for mark in item.metadata if isinstance(mark, Le)), "")
        bounds = ("" if bound == "" else shown(bound) for bound in (low, high))
        meaning = " ".join((item.description or "").split())
        rows.append((name, shown(item.default), *bounds, meaning))
    return rows


def test_the_table_of_the_service_says_what_its_fields_say() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## ServiceSettings\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if ROW.match(line)]
    rows = service_rows()
    assert lines == ["| `{}` | {} | {} | {} | {} |".format(*row) for row in rows]
    assert all(row[-1] for row in rows)
