"""Figures 1 and 4 of the Mondrian kernel's paper: a sample as cells and as a tree, and what a cut does to features."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from gpytorch_partition.partitions.mondrian.process import Boxes, Front

from .plots import COLORS, GRAY, finish, panels
from .report import Options, Table

LIFETIME, KEY, NUM_POINTS = 1.2, 57, 6


class Node(NamedTuple):
    """A cell of the unit square, from its birth to its cut (at the lifetime or later, there is none)."""

    parent: int
    birth: float
    cut: float
    column: int
    place: float
    lower: np.ndarray
    upper: np.ndarray

    @property
    def is_leaf(self) -> bool:
        return self.cut > LIFETIME

    def holds(self, points: np.ndarray) -> np.ndarray:
        return ((points >= self.lower) & (points <= self.upper)).all(1)


def mondrian_sample(options: Options) -> Iterator[Table]:
    """Draw one tree on the unit square; list the features of some points before and after its last cut."""
    nodes = _nodes()
    rows = [
        {"cell": number, "of cell": node.parent if number else "", "born": node.birth}
        | {"rate of column 1": node.upper[0] - node.lower[0], "rate of column 2": node.upper[1] - node.lower[1]}
        | ({} if node.is_leaf else {"cut at": node.cut, "column": node.column + 1, "place": node.place})
        for number, node in enumerate(nodes)
    ]
    title = f"Figure 1: a Mondrian process on the unit square until {LIFETIME}"
    yield Table("mondrian_figure_1", title, rows, draw=partial(_draw, nodes))
    yield Table("mondrian_figure_4", "Figure 4: features of points before and after the last cut", _features(nodes))


def _nodes() -> list[Node]:
    """Follow all cells, level by level; a grid of points keeps the cells' places."""
    steps = torch.linspace(0, 1, 400, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    box = Boxes(torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64))
    front, known = Front.at_roots(grid, len(grid), torch.tensor([KEY]), box), [0]
    nodes: list[Node] = []
    found = [(-1, 0.0)]  # parents and births
    while front.item.numel():
        cuts = front.next_cuts()
        for place, number in enumerate(known):
            walls = (values[:, place].numpy() for values in (front.nodes.lower, front.nodes.upper))
            cut = float(cuts.times[place]), int(cuts.dimensions[place]), float(cuts.places[place])
            nodes.append(Node(*found[number], *cut, *walls))
        times = cuts.times
        front, parents, _ = front.without(times > LIFETIME).below(cuts)
        born = [(known[parent], float(times[parent])) for parent in parents.tolist()]
        known = list(range(len(found), len(found) + len(born)))
        found += born
    return nodes


def _features(nodes: list[Node]) -> list[dict[str, Any]]:
    """Return the cells that hold each point, as columns of ones, around the last cut."""
    points = np.random.RandomState(0).rand(NUM_POINTS, 2)
    last = max((node for node in nodes if not node.is_leaf), key=lambda node: node.cut)
    number = nodes.index(last)
    rows = []
    for each, node in enumerate(nodes):
        if node.is_leaf or each == number:
            state = "removed" if each == number else "new" if node.parent == number else ""
            held = node.holds(points).astype(int).tolist()
            rows.append({"cell": each, "update": state} | {f"point {i + 1}": one for i, one in enumerate(held)})
    return rows


def _draw(nodes: list[Node]) -> Any:
    figure, (cells, tree) = panels(2, 4.4, 5.2)
    places = _places(nodes)
    for number, (node, place) in enumerate(zip(nodes, places)):
        tree.plot([place] * 2, [node.birth, min(node.cut, LIFETIME)], color=COLORS[0], lw=1.5)
        if not node.is_leaf:
            _draw_cut(cells, tree, node, place, [places[child] for child in _children(nodes, number)])
    square = {"xlim": (0, 1), "ylim": (0, 1), "xlabel": "column 1", "ylabel": "column 2"}
    finish(cells, "(a) cells, with the times of the cuts", **square)
    finish(
        tree, "(b) the tree, with the two rates of cells that are cut", ylabel="time", ylim=(LIFETIME, -0.15), xticks=[]
    )
    return figure


def _children(nodes: list[Node], number: int) -> list[int]:
    return [child for child, node in enumerate(nodes) if node.parent == number]


def _draw_cut(cells: Any, tree: Any, node: Node, place: float, children: list[float]) -> None:
    other = 1 - node.column
    ends = [node.lower[other], node.upper[other]]
    line = ([node.place] * 2, ends) if node.column == 0 else (ends, [node.place] * 2)
    cells.plot(*line, color=COLORS[0], lw=1.5)
    middle = [np.mean(values) for values in line]
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    cells.annotate(f"{node.cut:.2f}", middle, color=COLORS[2], fontsize=9, ha="center", va="center", bbox=box)
    tree.plot(children, [node.cut] * 2, color=COLORS[0], lw=1.5)
    tree.plot(place, node.cut, "o", color=COLORS[0], ms=5)
    for column, shift in ((0, -0.04), (1, 0.04)):
        color = COLORS[2] if column == node.column else GRAY
        rate, side = node.upper[column] - node.lower[column], "right" if column == 0 else "left"
        tree.annotate(f"{rate:.2f}", (place + shift, node.cut - 0.03), color=color, fontsize=8, ha=side)


def _places(nodes: list[Node]) -> list[float]:
    """Return a place on the horizontal axis for each node: leaves in order, parents between their children."""
    places, counter = [0.0] * len(nodes), iter(range(len(nodes)))

    def visit(number: int) -> None:
        children = _children(nodes, number)
        for child in children:
            visit(child)
        places[number] = float(np.mean([places[child] for child in children])) if children else float(next(counter))

    visit(0)
    return places
