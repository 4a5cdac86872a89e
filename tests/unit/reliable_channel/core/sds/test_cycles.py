"""Groups of nodes that reach each other, in the order in which they can be taken."""

from __future__ import annotations

from random import Random

import pytest

from reliable_channel.core.sds.cycles import components


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({}, []),
        ({1: []}, [{1}]),
        ({1: [1]}, [{1}]),
        ({1: [2], 2: [3], 3: []}, [{3}, {2}, {1}]),
        ({1: [2], 2: [1]}, [{1, 2}]),
        ({1: [2], 2: [3, 1], 3: [4], 4: [3], 5: [1]}, [{3, 4}, {1, 2}, {5}]),
    ],
    ids=["nothing", "one", "itself", "a line", "a circle", "a circle before a circle"],
)
def test_a_group_comes_after_all_that_it_reaches(
    graph: dict[int, list[int]], expected: list[set[int]]
) -> None:
    assert [set(group) for group in components(graph)] == expected


def test_groups_of_random_graphs_reach_each_other_and_nothing_later() -> None:
    rng = Random(3)
    for _ in range(200):
        size = rng.randrange(1, 12)
        graph = {
            node: [rng.randrange(size) for _ in range(rng.randrange(3))] for node in range(size)
        }
        reached = {node: reach(graph, node) for node in graph}
        groups = components(graph)
        assert sorted(node for group in groups for node in group) == list(range(size))
        taken: set[int] = set()
        for group in groups:
            for node in group:
                mutual = {other for other in reached[node] if node in reached[other]} | {node}
                assert mutual == set(group)
                assert reached[node] <= taken | set(group)
            taken |= set(group)


def reach(graph: dict[int, list[int]], start: int) -> set[int]:
    """Return what a node leads to."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        for other in graph[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def test_a_long_line_needs_no_recursion() -> None:
    size = 20_000
    graph = {node: [node + 1] for node in range(size)} | {size: [0]}
    assert len(components(graph)) == 1
