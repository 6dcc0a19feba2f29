"""Answers that begin alike, as a tree: what they share is read once.

Beams of one search differ in their last few tokens and share the rest; names of classes do as well. A node is a token
with all that was said before it. A path from a root to a leaf is an answer without its last token, after which nothing
is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

# A tree takes memory for each node: keys and values of every layer, and one row of who sees whom.
MAX_NODES = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """log p(token | the path to `node`) is the log-prob of token number `position` of these targets."""

    node: int
    token: int
    position: int
    targets: list[int]


@dataclass(frozen=True, slots=True)
class TargetTree:
    """Nodes in an order in which parents come before their children; depth 0 is the first token of an answer."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)  # -1 at a root
    depths: list[int] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def ancestors(self) -> Tensor:
        """(M, M): True where the column's node is on the path to the row's, itself included."""
        nodes = len(self.tokens)
        seen = torch.eye(nodes, dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        return seen


def grow_trees(targets: Sequence[Sequence[int]]) -> Iterator[TargetTree]:
    """Trees that together hold every target of two tokens or more; one of more than MAX_NODES tokens is its own."""
    # in the order of their tokens, those that share the most are neighbours
    order = sorted((tuple(target), number) for number, target in enumerate(targets) if len(target) > 1)
    nodes: dict[tuple[int, ...], int] = {}
    asked: dict[tuple[int, ...], Asked] = {}
    tree = TargetTree()
    for target, number in order:
        new = sum(target[:length] not in nodes for length in range(1, len(target)))
        if tree.tokens and len(tree.tokens) + new > MAX_NODES:
            yield tree
            nodes, asked, tree = {}, {}, TargetTree()
        for length in range(1, len(target)):
            path = target[:length]
            if path not in nodes:
                nodes[path] = len(tree.tokens)
                tree.tokens.append(path[-1])
                tree.parents.append(nodes.get(path[:-1], -1))
                tree.depths.append(length - 1)
            longer = target[: length + 1]
            if longer not in asked:
                asked[longer] = Asked(nodes[path], longer[-1], length, [])
                tree.asked.append(asked[longer])
            asked[longer].targets.append(number)
    if tree.tokens:
        yield tree
