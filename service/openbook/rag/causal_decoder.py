"""A causal language model between two tokens of an answer.

R rows, each one passage with one question in one prompt, B hypotheses a row, V vocabulary, t tokens said. A row's cache
holds its prompt in P slots, then the tokens of its hypotheses, which are the paths of a tree: a path lists the slots
of its tokens. All hypotheses of a row are read in one pass over one copy of the prompt; following the beams copies
paths, not keys. A slot that no path holds is given to a new token.

Two things that a model says in several ways count as one. An answer ends with any of several tokens: their
probabilities are summed, and the first of them stands for all. And a refusal ("unknown") is the empty answer: its whole
probability goes there, and no other answer changes.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.rag.causal_network import CausalNetwork
from openbook.rag.decoder import BetweenSteps, Targets, nothing, slices
from openbook.rag.target_tree import TargetTree, grow_trees

FIRST_SLOTS = 32


@dataclass(frozen=True, slots=True)
class Ends:
    """The tokens that end an answer, and the answers that count as the empty one, each with `stops[0]` at its end."""

    stops: tuple[int, ...]
    refusals: tuple[tuple[int, ...], ...] = ()

    def fold(self, logits: Tensor) -> Tensor:
        """The same distribution with all stops as one, in place: (..., V) -> (..., V)."""
        if len(self.stops) > 1:
            together = logits[..., list(self.stops)].logsumexp(dim=-1)  # (...)
            logits[..., list(self.stops)] = -torch.inf
            logits[..., self.stops[0]] = together
        return logits


@dataclass(frozen=True, slots=True)
class Prompts:
    """R prompts, read but for their questions: shared | passage, padded | the question's tokens, not read yet.

    The P slots hold the shared part or, where the network keeps it, begin with the passage."""

    cache: Tensor  # (Y, 2, R, H, S, dh) with slots for the questions and some answers
    seen: Tensor  # (R, P), True where a slot holds a token of the prompt
    positions: Tensor  # (R, P), of each slot's token in its own prompt
    lengths: Tensor  # (R,), tokens of the whole prompt
    questions: Tensor  # (R, T), padded at the beginning


class CausalState:
    """A `DecoderState` of a causal language model."""

    def __init__(self, network: CausalNetwork, ends: Ends, prompts: Prompts) -> None:
        self._network, self._ends = network, ends
        self._cache, self._seen = prompts.cache, prompts.seen
        rows, self._prompt = prompts.seen.shape  # R, P
        self._lengths = prompts.lengths  # (R,)
        self._positions = F.pad(prompts.positions, (0, prompts.cache.shape[4] - self._prompt))  # (R, S)
        self._paths = self._lengths.new_zeros(rows, 1, 0)  # (R, B, t)
        # which hypotheses have said nothing but the beginning of which refusal
        self._refusing = self._seen.new_ones(rows, 1, len(ends.refusals))  # (R, B, J)
        self._begun = [self._refusing]  # the same before the last `read` and after each of its tokens
        self.logits, self._left = self._read_questions(prompts.questions)  # (R, 1, V), (R, J, t)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        rows, beams = tokens.shape
        said = self._paths.shape[-1]  # t
        self._follow_beams(sources)
        refusing = self._refusing.gather(1, sources[..., None].expand(-1, -1, self._refusing.shape[-1]))  # (R, B, J)
        self._refusing = self._still_refusing(refusing, tokens, said)
        slots = self._paths[..., -1]  # (R, B)
        positions = (self._lengths + said)[:, None].expand(-1, beams)  # (R, B)
        self._positions.scatter_(1, slots, positions)
        # two of the largest tensor of a step are never in memory together
        self.logits = self.logits.new_empty(0)
        used = int(self._paths.max()) + 1
        own = torch.zeros(rows, beams, used - self._prompt, dtype=torch.bool, device=tokens.device)
        own.scatter_(2, self._paths - self._prompt, True)
        logits = self._step(tokens, positions, own, slots, keep=beams)  # (R, B, V)
        self.logits = self._without_refusals(logits, self._refusing, said + 1)

    def read(self, tokens: Sequence[int]) -> Tensor:
        rows, new, said = len(self._seen), len(tokens), self._paths.shape[-1]
        # the tokens of a lone hypothesis stand in the order of its text
        start, end = self._prompt + said, self._prompt + said + new
        self._make_room(end)
        slots = torch.arange(self._prompt, end, device=self._seen.device)  # (t + T,)
        self._paths = slots.expand(rows, 1, -1)
        self._positions[:, start:end] = self._lengths[:, None] + (slots[said:] - self._prompt)
        own = (slots <= slots[said:, None]).expand(rows, -1, -1)  # (R, T, t + T)
        ids = torch.tensor(list(tokens), device=slots.device).expand(rows, -1)  # (R, T)
        logits = self._step(ids, self._positions[:, start:end], own, slice(start, end), keep=new)  # (R, T, V)
        self._begun = [self._refusing]
        for place in range(new):
            refusing = self._still_refusing(self._begun[-1].clone(), ids[:, place, None], said + place)
            self._without_refusals(logits[:, place, None], refusing, said + place + 1)
            self._begun.append(refusing)
        self._refusing = self._begun[-1]
        return logits

    def forget(self, count: int) -> None:
        self._paths = self._paths[..., : self._paths.shape[-1] - count]
        self._refusing = self._begun[len(self._begun) - 1 - count]

    def branch(self, rows: Sequence[int]) -> "CausalState":
        chosen = list(rows)
        other = copy(self)
        other._cache = self._cache[:, :, chosen]
        other._seen, other._lengths = self._seen[chosen], self._lengths[chosen]
        other._positions, other._paths = self._positions[chosen], self._paths[chosen]
        other._refusing, other._left = self._refusing[chosen], self._left[chosen]
        other.logits = self.logits[chosen]
        return other

    def follow(self, targets: Targets, between_steps: BetweenSteps = nothing) -> list[Tensor]:
        """Targets are the paths of a tree that all rows read: what they share is read once."""
        followed = _begin(self.logits[:, 0], targets)  # (R, T) each
        for tree in grow_trees(targets):
            refusing = self._refusing_nodes(tree)
            for some in slices(len(tree.tokens), self.logits.shape[0] * self.logits.shape[-1]):
                between_steps()
                logits = self._read_tree(tree, some)  # (R, S, V)
                for said, where in refusing.items():
                    here = where[some]  # (S, J)
                    if bool(here.any()):
                        logits = self._without_refusals(logits, here.expand(len(logits), -1, -1), said)
                _gather(followed, tree, some, logits)
        return followed

    # --- what an answer means ----------------------------------------------------------------------------------

    def _without_refusals(self, logits: Tensor, refusing: Tensor, said: int) -> Tensor:
        """Take each refusal's probability from the hypotheses that are about to say it: logits (R, B, V), which of the
        refusals each has begun (R, B, J).

        Before the first token it goes to the end, so that nothing is lost. After that, logits need no constant.
        """
        if not bool(refusing.any()):
            return logits
        total = logits.logsumexp(dim=-1)  # (R, B)
        for number, refusal in enumerate(self._ends.refusals):
            if said >= len(refusal):
                continue
            whole = (total + self._left[:, number, said, None]).to(logits)  # (R, B), of what is left of the refusal
            token = refusal[said]
            before = logits[..., token]  # (R, B)
            # 0 where rounding makes the part as large as the whole: nothing else begins like this
            without = before + torch.log(-torch.expm1((whole - before).clamp(max=0.0)))
            logits[..., token] = torch.where(refusing[..., number], without, before)
            if said == 0:
                end = logits[..., self._ends.stops[0]]
                logits[..., self._ends.stops[0]] = torch.where(refusing[..., number], torch.logaddexp(end, whole), end)
        return logits

    def _still_refusing(self, refusing: Tensor, tokens: Tensor, said: int) -> Tensor:
        """Which refusals (R, B, J) hypotheses still say with these tokens (R, B), `said` after the first; in place."""
        for number, refusal in enumerate(self._ends.refusals):
            refusing[..., number] &= (tokens == refusal[said]) if said < len(refusal) else False
        return refusing

    def _refusing_nodes(self, tree: TargetTree) -> dict[int, Tensor]:
        """By number of tokens said: which nodes (M, J) have said the beginning of which refusal."""
        found: dict[int, Tensor] = {}
        begun: set[tuple[int, int]] = set()
        for node, (token, parent, depth) in enumerate(zip(tree.tokens, tree.parents, tree.depths, strict=True)):
            for number, refusal in enumerate(self._ends.refusals):
                if depth < len(refusal) and token == refusal[depth] and (depth == 0 or (parent, number) in begun):
                    begun.add((node, number))
                    shape = (len(tree.tokens), len(self._ends.refusals))
                    where = found.setdefault(depth + 1, torch.zeros(shape, dtype=torch.bool, device=self.logits.device))
                    where[node, number] = True
        return found

    # --- passes through the model ------------------------------------------------------------------------------

    def _read_questions(self, questions: Tensor) -> tuple[Tensor, Tensor]:
        """The questions (R, T), and in the same pass the refusals: logits (R, 1, V) of the first token, and log p of
        what is left of each refusal after so many of its tokens (R, J, t)."""
        (tree,) = tuple(grow_trees(self._ends.refusals)) or (TargetTree(),)
        rows, new = questions.shape
        nodes = len(tree.tokens)  # M
        start, end = self._prompt - new, self._prompt + nodes
        self._make_room(end)
        self._place(tree)
        device = questions.device
        tokens = torch.cat([questions, torch.tensor(tree.tokens, device=device).long().expand(rows, -1)], dim=1)
        before = torch.arange(start, self._prompt, device=device)  # (T,)
        of_question = self._seen[:, None] & (torch.arange(self._prompt, device=device) <= before[:, None])  # (R, T, P)
        of_tree = self._seen[:, None].expand(-1, nodes, -1)  # (R, M, P)
        visible = torch.cat(
            [
                F.pad(of_question, (0, nodes)),
                torch.cat([of_tree, tree.ancestors().to(device).expand(rows, -1, -1)], dim=2),
            ],
            dim=1,
        )  # (R, T + M, P + M)
        logits = self._network.read(
            self._cache,
            tokens,
            self._positions[:, start:end],
            visible,
            slots=slice(start, end),
            slot_positions=self._positions[:, :end],
            keep=1 + nodes,
        )  # (R, 1 + M, V)
        logits = self._ends.fold(logits)
        first = logits[:, :1]  # (R, 1, V)
        if not self._ends.refusals:
            return first, first.new_zeros(rows, 0, 0)
        followed = _begin(first[:, 0], self._ends.refusals)
        _gather(followed, tree, slice(0, nodes), logits[:, 1:])
        longest = max(map(len, self._ends.refusals))
        left = [F.pad(one.flip(1).cumsum(1).flip(1), (0, longest - one.shape[1])) for one in followed]  # (R, t) each
        self._left = torch.stack(left, dim=1)
        return self._without_refusals(first.clone(), self._refusing, 0), self._left

    def _read_tree(self, tree: TargetTree, some: slice) -> Tensor:
        """Some nodes of a tree, whose ancestors are read: logits (R, S, V)."""
        self._make_room(self._prompt + len(tree.tokens))
        self._place(tree)
        device = self.logits.device
        rows = len(self._seen)
        tokens = torch.tensor(tree.tokens[some], device=device).expand(rows, -1)  # (R, S)
        own = tree.ancestors()[some, : some.stop].to(device).expand(rows, -1, -1)  # (R, S, M')
        start, end = self._prompt + some.start, self._prompt + some.stop
        return self._step(tokens, self._positions[:, start:end], own, slice(start, end), keep=tokens.shape[1])

    def _step(self, tokens: Tensor, positions: Tensor, own: Tensor, slots: slice | Tensor, *, keep: int) -> Tensor:
        """New tokens (R, T) that see their whole prompt and `own` (R, T, S' - P) of the slots behind it."""
        of_prompt = self._seen[:, None].expand(-1, tokens.shape[1], -1)  # (R, T, P)
        visible = torch.cat([of_prompt, own], dim=2)  # (R, T, S')
        logits = self._network.read(
            self._cache,
            tokens,
            positions,
            visible,
            slots=slots,
            slot_positions=self._positions[:, : visible.shape[2]],
            keep=keep,
        )
        return self._ends.fold(logits)

    # --- slots -------------------------------------------------------------------------------------------------

    def _place(self, tree: TargetTree) -> None:
        """Give the nodes of a tree the slots behind the prompt, and their positions."""
        depths = torch.tensor(tree.depths, device=self._seen.device).long()  # (M,)
        self._positions[:, self._prompt : self._prompt + len(depths)] = self._lengths[:, None] + depths

    def _follow_beams(self, sources: Tensor) -> None:
        """Let each hypothesis continue the path of its source, sources (R, B), with a slot for its next token."""
        beams = sources.shape[1]
        paths = self._paths.gather(1, sources[..., None].expand(-1, -1, self._paths.shape[-1]))  # (R, B, t)
        taken = torch.zeros_like(self._positions, dtype=torch.uint8)  # (R, S)
        taken[:, : self._prompt] = 1
        taken.scatter_(1, paths.flatten(1), 1)
        self._make_room(int(taken.sum(dim=1).max()) + beams)
        taken = F.pad(taken, (0, self._positions.shape[1] - taken.shape[1]))
        free = taken.argsort(dim=1, stable=True)[:, :beams]  # (R, B), the lowest first
        self._paths = torch.cat([paths, free[..., None]], dim=-1)  # (R, B, t + 1)

    def _make_room(self, slots: int) -> None:
        """Let each row have this many slots at least."""
        before = self._cache.shape[4]
        if slots > before:
            more = max(slots - before, before - self._prompt)
            # zeros, not what is in memory: a hidden nan is still a nan
            self._cache = F.pad(self._cache, (0, 0, 0, more))
            self._positions = F.pad(self._positions, (0, more))


def _begin(logits: Tensor, targets: Targets) -> list[Tensor]:
    """A tensor (R, T) for each target, filled with log p of its first token: logits (R, V)."""
    log_probs = torch.log_softmax(logits, dim=-1)  # (R, V)
    followed = [log_probs.new_empty(len(log_probs), len(target)) for target in targets]
    for one, target in zip(followed, targets, strict=True):
        one[:, 0] = log_probs[:, target[0]]
    return followed


def _gather(followed: list[Tensor], tree: TargetTree, some: slice, logits: Tensor) -> None:
    """Fill in log p of the tokens that come after some nodes: logits (R, S, V)."""
    total = logits.logsumexp(dim=-1)  # (R, S)
    for one in tree.asked:
        if some.start <= one.node < some.stop:
            place = one.node - some.start
            for target in one.targets:
                followed[target][:, one.position] = logits[:, place, one.token] - total[:, place]
