"""Circles in a graph: which nodes reach each other, those that nothing else is needed for first.

Pure functions over numbers; what the nodes are is for ``causal``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def components(graph: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Return the nodes in groups that reach each other; a group comes after all that it reaches.

    Tarjan's algorithm without recursion, in time of nodes and edges.

    Args:
        graph: For each node those that it leads to; all of them are nodes.
    """
    found: list[list[int]] = []
    place: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: dict[int, None] = {}
    for start in graph:
        if start in place:
            continue
        place[start] = lowest[start] = len(place)
        open_nodes[start] = None
        path = [(start, iter(graph[start]))]
        while path:
            node, edges = path[-1]
            for other in edges:
                if other not in place:
                    place[other] = lowest[other] = len(place)
                    open_nodes[other] = None
                    path.append((other, iter(graph[other])))
                    break
                if other in open_nodes:
                    lowest[node] = min(lowest[node], place[other])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == place[node]:
                    group: list[int] = []
                    while not group or group[-1] != node:
                        group.append(open_nodes.popitem()[0])
                    found.append(group)
    return found
