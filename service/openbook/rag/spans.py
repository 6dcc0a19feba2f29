"""Spans as answers: what a reader that points says of K passages, added up over all of its spans.

The reader gives token i of passage z a start s_i and token j an end e_j, and the first token of its input a null. A
span i..j has at most L tokens, begins and ends with a whole word, and stays within a heading, a paragraph, a row of a
table or a block of code. Nothing here is searched or cut off: every span of every passage is counted.

    p(i..j | x, z) = exp(s_i + e_j) / Z_z    p(empty | x, z) = exp(null_z) / Z_z    Z_z sums over all spans and the null
    p(y | x, z)    = sum of p(i..j | x, z) over the spans that read y
    p(y_<i | x, z) = sum of p(i..j | x, z) over the spans that begin with y_<i: a prefix mass
    w(z)           = p(z | x), or p(z | x) Z_z / sum over z', which is one softmax shared by all passages

    RAG-Sequence   p(y | x) = sum_z w(z) p(y | x, z)
    RAG-Token      p(y_i | x, y_<i) = sum_z w(z) p(y_<=i | x, z) / p(y_<i | x, z), divided by sum_z w(z); both sums are
                   over the passages that hold y_<i. The end after y has the mass p(y | x, z).

    N tokens in which a span can begin, of all passages; T_z tokens of passage z; n tokens of an answer

The N x L spans are the paths of a tree whose nodes are the different beginnings. Sorted by what they read, the spans of
a node stand together, so that one comparison of neighbours numbers the nodes of all depths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from openbook.entities import ModelKind

Normalisation = Literal["passage", "shared"]
"""Whether each passage's spans and null have a softmax of their own, or those of all passages share one."""


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """The scores of a passage's spans: (T, L), of the one that begins at a token and has l + 1 of them, else -inf.

    `keys` (T,) number the tokens; tokens that read alike have one key, and as the first of a span that of `firsts`
    (T,). `rooms` (T,) count the tokens from here to the end of title, paragraph or row, L at most, and 0 where no span
    begins.
    """

    firsts: Tensor
    keys: Tensor
    rooms: Tensor
    spans: Tensor
    null: float


@dataclass(frozen=True, slots=True)
class Beginning:
    """A node of the tree: the first `length` tokens of row `row`. An answer ended there; a cut one did not."""

    row: int
    length: int
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Shares:
    """What each passage gives the T steps of an answer: p(y_<=i | x, z), the end a step of its own, and which
    passages hold y_<i."""

    masses: Tensor  # (K, T)
    holds: Tensor  # (K, T)


def score_spans(starts: Tensor, ends: Tensor, rooms: Tensor, longest: int) -> Tensor:
    """s_i + e_j of the spans that each token begins: (T,), (T,), (T,) -> (T, L), -inf beyond its room."""
    padded = torch.cat([ends, ends.new_full((longest,), -torch.inf)])  # (T + L,)
    spans = starts[:, None] + padded.unfold(0, longest, 1)[: len(starts)]  # (T, L)
    return spans.masked_fill(torch.arange(longest) >= rooms[:, None], -torch.inf)


class SpanTree:
    """All spans of the K passages of one question, by what they read. Numbers are float64."""

    def __init__(self, passages: Sequence[ScoredPassage]) -> None:
        self._n_docs = len(passages)
        self.longest = passages[0].spans.shape[1]
        nulls = torch.tensor([one.null for one in passages], dtype=torch.float64)  # (K,)
        totals = torch.stack([one.spans.double().flatten().logsumexp(0) for one in passages])  # (K,)
        log_masses = torch.logaddexp(totals, nulls)  # (K,) log Z_z
        self._log_masses = log_masses
        self.null = (nulls - log_masses).exp()  # (K,) p(empty | x, z)
        begins = [one.rooms.nonzero()[:, 0] for one in passages]  # K of (N_z,)
        windows = torch.cat([_windows(one)[some] for one, some in zip(passages, begins, strict=True)])  # (N, L)
        order = _sorted(windows)  # (N,)
        self._windows = windows[order]
        self.passages = torch.cat([torch.full_like(some, z) for z, some in enumerate(begins)])[order]  # (N,)
        self.places = torch.cat(begins)[order]  # (N,) the token of its passage
        spans = torch.cat([one.spans[some] for one, some in zip(passages, begins, strict=True)])[order]  # (N, L)
        self._shares = (spans.double() - log_masses[self.passages, None]).exp()  # (N, L) p(i..j | x, z)
        self._begins = self._shares.flip(1).cumsum(1).flip(1)  # (N, L), of the spans from here with more than l tokens
        self._valid = self._windows >= 0  # (N, L)
        self._fresh = self._valid & ~_shared(self._windows)  # (N, L), the first row of each node
        in_column = self._fresh.cumsum(0) - 1  # (N, L)
        before = self._fresh.sum(0).cumsum(0) - self._fresh.sum(0)  # (L,) nodes of less depth
        self._nodes = (in_column + before).masked_fill(~self._valid, -1)  # (N, L)
        self._n_nodes = int(self._fresh.sum())

    def weights(self, log_prior: Tensor, normalisation: Normalisation) -> Tensor:
        """w(z): log_prior (K,) -> (K,)."""
        log_weights = log_prior.double().cpu()  # (K,)
        return torch.softmax(log_weights if normalisation == "passage" else log_weights + self._log_masses, dim=0)

    def empty_log_prob(self, weights: Tensor) -> float:
        """log p(empty | x), the same for both models: weights (K,)."""
        return float((weights * self.null).sum().log())

    def best(self, model: ModelKind, weights: Tensor, count: int, max_tokens: int) -> list[tuple[Beginning, float]]:
        """The `count` likeliest answers of one token or more with log p(y | x), best first: weights (K,).

        An answer of more than `max_tokens`, its end included, counts as its first `max_tokens` without an end.
        """
        answers, beginnings = (self._of_sequence if model == "sequence" else self._of_token)(weights)  # (N, L) each
        lengths = torch.arange(1, self.longest + 1)  # (L,)
        scores = torch.where(lengths < max_tokens, answers, beginnings)
        scores = scores.masked_fill(~self._fresh | (lengths > max_tokens), -torch.inf).flatten()  # (N * L,)
        found = scores.topk(min(count, len(scores)))
        return [
            (Beginning(place // self.longest, length := place % self.longest + 1, length < max_tokens), log_prob)
            for log_prob, place in zip(found.values.tolist(), found.indices.tolist(), strict=True)
            if log_prob > -torch.inf
        ]

    def find(self, keys: Sequence[int]) -> Beginning | None:
        """The answer that reads these tokens; None where no span does."""
        if not 0 < len(keys) <= self.longest:
            return None
        same = (self._windows[:, : len(keys)] == torch.tensor(list(keys))).all(dim=1)  # (N,)
        return Beginning(int(same.nonzero()[0]), len(keys)) if bool(same.any()) else None

    def rows(self, beginning: Beginning, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The rows whose spans begin so, the likeliest first, and their p(span | x, z): where the answer stands.

        (K,) -> (N',), (N',)
        """
        column = beginning.length - 1
        rows = (self._nodes[:, column] == self._nodes[beginning.row, column]).nonzero()[:, 0]  # (N',)
        of_spans = self._shares if beginning.ended else self._begins
        joint = weights[self.passages[rows]] * of_spans[rows, column]  # (N',)
        rows = rows[joint.argsort(descending=True, stable=True)]
        return rows, of_spans[rows, column]

    def shares(self, beginning: Beginning | None) -> Shares:
        """What each passage gives to the tokens of an answer and to its end; None is the empty one."""
        holds_all = torch.ones(self._n_docs, 1, dtype=torch.bool)  # (K, 1)
        if beginning is None:
            return Shares(self.null[:, None], holds_all)
        length = beginning.length
        on_path = self._nodes[:, :length] == self._nodes[beginning.row, :length]  # (N, n)
        zeros = self._begins.new_zeros(self._n_docs, length)  # (K, n)
        masses = zeros.index_add(0, self.passages, self._begins[:, :length] * on_path)  # (K, n)
        holds = zeros.index_add(0, self.passages, on_path.double()) > 0  # (K, n)
        if not beginning.ended:
            return Shares(masses, torch.cat([holds_all, holds[:, :-1]], dim=1))
        ends = zeros[:, :1].index_add(0, self.passages, (self._shares[:, :length] * on_path)[:, -1:])  # (K, 1)
        return Shares(torch.cat([masses, ends], dim=1), torch.cat([holds_all, holds], dim=1))

    def _of_sequence(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """log p(y | x) and log p(y_<=i | x) of the first l + 1 tokens of each row: (K,) -> (N, L) each."""
        nodes = self._nodes[self._valid]  # (P,)
        of_rows = weights[self.passages, None].expand_as(self._shares)[self._valid]  # (P,)
        answers, beginnings = (
            self._add(nodes, of_rows * of_spans[self._valid]).log() for of_spans in (self._shares, self._begins)
        )  # (nodes,) each
        return answers[self._nodes], beginnings[self._nodes]

    def _of_token(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The same of RAG-Token."""
        nodes = self._nodes[self._valid]  # (P,)
        of_docs = self.passages[:, None].expand_as(self._nodes)[self._valid]  # (P,)
        # a pair is a node with one of the passages that hold it
        pairs, numbers = torch.unique(nodes * self._n_docs + of_docs, return_inverse=True)  # (pairs,), (P,)
        node, weight = pairs // self._n_docs, weights[pairs % self._n_docs]  # (pairs,) each
        masses, ends = (
            weight.new_zeros(len(pairs)).index_add(0, numbers, of_spans[self._valid])
            for of_spans in (self._begins, self._shares)
        )  # (pairs,) each
        of_row = torch.full_like(self._nodes, -1).masked_scatter(self._valid, numbers)  # (N, L)
        deeper = self._valid[:, 1:]
        parents = torch.full_like(pairs, -1)  # (pairs,), -1 at the root
        parents[of_row[:, 1:][deeper]] = of_row[:, :-1][deeper]
        at_root = parents < 0
        holding = self._add(node, weight)  # (nodes,) sum of w(z) over the passages that hold it
        before = masses[parents].masked_fill(at_root, 1.0)  # (pairs,)
        step = self._add(node, weight * _ratio(masses, before))  # (nodes,)
        held = holding.new_ones(self._n_nodes)
        held[node] = holding[node[parents]].masked_fill(at_root, 1.0)  # sum of w(z) over those that hold the parent
        end = self._add(node, weight * _ratio(ends, masses))  # (nodes,)
        # a node of passages without weight is held by none
        beginnings = _ratio(step, held).log()[self._nodes].cumsum(dim=1)  # (N, L)
        return beginnings + _ratio(end, holding).log()[self._nodes], beginnings

    def _add(self, nodes: Tensor, values: Tensor) -> Tensor:
        """The sum of each node: (P,), (P,) -> (nodes,)."""
        return values.new_zeros(self._n_nodes).index_add(0, nodes, values)


def steps_of_sequence(shares: Shares, weights: Tensor) -> tuple[Tensor, Tensor]:
    """log p(y_i | x, y_<i) and p(z | x, y_<=i) of RAG-Sequence: (K, T), (K,) -> (T,), (K, T)."""
    joint = weights[:, None] * shares.masses  # (K, T)
    total = joint.sum(dim=0)  # (T,) p(y_<=i | x)
    log_probs = torch.cat([total[:1].log(), total.log().diff()])  # (T,)
    return log_probs, torch.where(total > 0, joint / total, weights[:, None])


def steps_of_token(shares: Shares, weights: Tensor) -> tuple[Tensor, Tensor]:
    """log p(y_i | x, y_<i) and p(z | x, y_i, y_<i) of RAG-Token: (K, T), (K,) -> (T,), (K, T)."""
    before = torch.cat([torch.ones_like(shares.masses[:, :1]), shares.masses[:, :-1]], dim=1)  # (K, T)
    # the masses of an ended answer end with that of the answer itself
    joint = weights[:, None] * _ratio(shares.masses, before)  # (K, T)
    total = joint.sum(dim=0)  # (T,)
    held = (weights[:, None] * shares.holds).sum(dim=0)  # (T,)
    return (total / held).log(), torch.where(total > 0, joint / total, weights[:, None])


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, 0 where the whole is 0."""
    return torch.where(whole > 0, part / whole, 0.0)


def _windows(passage: ScoredPassage) -> Tensor:
    """The keys that follow each token, -1 beyond its room: (T, L)."""
    longest = passage.spans.shape[1]
    padded = torch.cat([passage.keys, passage.keys.new_full((longest,), -1)])  # (T + L,)
    windows = padded.unfold(0, longest, 1)[: len(passage.keys)]  # (T, L)
    windows = torch.cat([passage.firsts[:, None], windows[:, 1:]], dim=1)
    return windows.masked_fill(torch.arange(longest) >= passage.rooms[:, None], -1)


def _sorted(windows: Tensor) -> Tensor:
    """The order of the rows by what they read: (N, L) -> (N,)."""
    # unsigned numbers with the highest byte first compare as their bytes do
    rows = np.ascontiguousarray((windows + 1).numpy().astype(">u8"))
    names = [row.tobytes() for row in rows]
    return torch.tensor(sorted(range(len(names)), key=names.__getitem__), dtype=torch.long)


def _shared(windows: Tensor) -> Tensor:
    """Whether the first l + 1 keys of a sorted row are those of the row before: (N, L) -> (N, L)."""
    same = windows[1:] == windows[:-1]  # (N - 1, L)
    return torch.cat([same.new_zeros(1, windows.shape[1]), same.cumprod(dim=1).bool()])[: len(windows)]
