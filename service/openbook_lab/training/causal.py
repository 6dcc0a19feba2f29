"""What a causal language model is shown and learns: the prompts that serve, each with an answer behind it.

A row is a prompt and an answer, in the tokens of `CausalWording`. Two things that serving
counts as one count as one here. An answer ends with any of several tokens. And a refusal ("unknown") is the empty
answer: its probability goes there, so a passage that does not answer teaches the model to end at once or to refuse,
whichever it prefers. `causal_state` of the plug-in is the same while serving.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.entities import Passage
from openbook.plugins.generators.causal_wording import CausalWording
from openbook.rag.decoder import next_token_logits
from openbook.rag.wording import Wording
from openbook_lab.training.batches import IGNORED, padded
from openbook_lab.training.examples import ReadingExample

# of the difference of two probabilities that are equal but for rounding
SMALLEST_SHARE = 1e-6

Tokens = tuple[int, ...]
AnyWording = Wording | CausalWording


@dataclass(frozen=True, slots=True)
class CausalExample:
    """The tokens of a prompt, and those of what to say, its end included."""

    input_ids: Tokens
    target_ids: Tokens


@dataclass(frozen=True, slots=True)
class NearRefusal:
    """A refusal that an example's target must be told apart from: its log-probs are `asked` in the batch.

    They share their first `shared` tokens.
    """

    example: int
    asked: slice
    shared: int


class CausalBatch(NamedTuple):
    """B examples in R >= B rows, padded at their beginning: a refusal takes a row of its own where one is needed.

    `asked` says which log-probs are looked up, as (row, place, token): first those of all N target tokens, then those
    of `refused`. Places count from the end of a row.
    """

    input_ids: Tensor  # (R, S)
    attention_mask: Tensor  # (R, S)
    targets: Tensor  # (B, T), IGNORED on padding
    asked: Tensor  # (N + M, 3)
    refused: tuple[NearRefusal, ...]
    keep: int
    stops: Tensor  # (Z,), the first is the end in `targets`
    evidence: Tensor  # (B, T, 0): there is no cross-attention to be guided

    def to(self, device: torch.device) -> "CausalBatch":
        """The same on another device."""
        return self._replace(
            input_ids=self.input_ids.to(device),
            attention_mask=self.attention_mask.to(device),
            targets=self.targets.to(device),
            asked=self.asked.to(device),
            stops=self.stops.to(device),
            evidence=self.evidence.to(device),
        )


def encode_causal(
    examples: Sequence[ReadingExample], wording: CausalWording, longest_target: int
) -> list[CausalExample]:
    """The prompts as serving makes them; a longer answer is cut to `longest_target` tokens, its end included.

    Raises InvalidRequest for an answer that holds a token that ends one, and for a question that is too long.
    """
    encoded = []
    for example in examples:
        # a line break inside an answer would be its end
        said = wording.target(" ".join(example.answer.split()))
        prompt = wording.row(Passage("", example.title, example.text), example.question)
        encoded.append(CausalExample(prompt, (*said[:-1][: longest_target - 1], said[-1])))
    return encoded


def collate_causal(examples: Sequence[CausalExample], wording: CausalWording) -> CausalBatch:
    """Pad the examples of one batch."""
    rows: list[Tokens] = []
    of_targets: list[tuple[int, int, int]] = []
    of_refusals: list[tuple[int, int, int]] = []
    refused: list[NearRefusal] = []
    for number, example in enumerate(examples):
        target = example.target_ids
        near = [one for one in wording.refusals if target == (wording.eos,) or one[0] == target[0]]
        # the empty answer needs what comes after the prompt alone: any row has that
        paths = dict.fromkeys([*([] if near and len(target) == 1 else [target[:-1]]), *(one[:-1] for one in near)])
        row_of = {path: len(rows) + place for place, path in enumerate(paths)}
        rows += [(*example.input_ids, *path) for path in paths]
        own = target[:-1] if target[:-1] in row_of else next(iter(paths))
        of_targets += _asked(row_of[own], own, target)
        for one in near:
            asked = slice(len(of_refusals), len(of_refusals) + len(one))
            of_refusals += _asked(row_of[one[:-1]], one[:-1], one)
            shared = next((n for n, (a, b) in enumerate(zip(one, target, strict=False)) if a != b), len(target))
            refused.append(NearRefusal(number, asked, shared))
    longest = max(len(example.target_ids) for example in examples)
    targets = torch.full((len(examples), longest), IGNORED)  # (B, T)
    for number, example in enumerate(examples):
        targets[number, : len(example.target_ids)] = torch.tensor(example.target_ids)
    width = padded(max(map(len, rows)))
    lengths = torch.tensor([len(row) for row in rows])[:, None]  # (R, 1)
    before = len(of_targets)
    return CausalBatch(
        input_ids=torch.tensor([[*([wording.eos] * (width - len(row))), *row] for row in rows]),
        attention_mask=(torch.arange(width) >= width - lengths).long(),
        targets=targets,
        asked=torch.tensor([*of_targets, *of_refusals]),
        refused=tuple(
            NearRefusal(one.example, slice(before + one.asked.start, before + one.asked.stop), one.shared)
            for one in refused
        ),
        keep=max(place for _, place, _ in [*of_targets, *of_refusals]),
        stops=torch.tensor(wording.stops),
        evidence=torch.zeros(*targets.shape, 0, dtype=torch.bool),
    )


def _asked(row: int, path: Tokens, said: Tokens) -> list[tuple[int, int, int]]:
    """The place in `row`, which ends with `path`, where each token of `said` comes next."""
    return [(row, len(path) + 1 - number, token) for number, token in enumerate(said)]


def causal_token_log_probs(generator: PreTrainedModel, batch: CausalBatch) -> Tensor:
    """log p(y_i | x, z, y_<i) of every target token as serving has it, 0 elsewhere, in float32 at least: (B, T)."""
    # positions count real tokens; what is hidden has any position
    positions = (batch.attention_mask.cumsum(dim=1) - 1).clamp(min=0)  # (R, S)
    logits = generator(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=positions,
        use_cache=False,
        logits_to_keep=batch.keep,
    ).logits  # (R, keep, V)
    row, place, token = batch.asked.T  # (A,) each
    chosen = next_token_logits(logits[row, logits.shape[1] - place])  # (A, V)
    end = chosen[:, batch.stops].logsumexp(dim=-1)  # (A,)
    own = chosen.gather(1, token[:, None])[:, 0]  # (A,)
    found = torch.where(token == batch.stops[0], end, own) - chosen.logsumexp(dim=-1)  # (A,)
    wanted = batch.targets != IGNORED  # (B, T)
    log_probs = found.new_zeros(wanted.shape).masked_scatter(wanted, found[: int(wanted.sum())])  # (B, T)
    if not batch.refused:
        return log_probs
    near: dict[int, list[tuple[Tensor, int]]] = {}
    for one in batch.refused:
        near.setdefault(one.example, []).append((found[one.asked].sum(), one.shared))
    lines = list(log_probs)
    for example, refusals in near.items():
        is_empty = int(wanted[example].sum()) == 1 and int(batch.targets[example, 0]) == int(batch.stops[0])
        lines[example] = _with_refusals(lines[example], refusals) if is_empty else _without(lines[example], refusals)
    return torch.stack(lines)


def _with_refusals(log_probs: Tensor, refusals: Sequence[tuple[Tensor, int]]) -> Tensor:
    """The empty answer, (T,), with the probability of each refusal."""
    together = torch.stack([log_probs[0], *(whole for whole, _ in refusals)]).logsumexp(dim=0)  # ()
    return torch.cat([together[None], log_probs[1:]])


def _without(log_probs: Tensor, refusals: Sequence[tuple[Tensor, int]]) -> Tensor:
    """An answer, (T,), that begins as refusals do: their probability is no part of its beginning's.

    Whole answers keep their probability, so only the tokens that are shared change, and the one behind them.
    """
    whole = log_probs.cumsum(dim=0)  # (T,), log p of each beginning
    beginnings = list(whole)
    for number in range(max(shared for _, shared in refusals)):
        inside = torch.stack([one for one, shared in refusals if shared > number]).logsumexp(dim=0)  # ()
        share = (inside - whole[number]).clamp(max=-SMALLEST_SHARE)
        beginnings[number] = whole[number] + torch.log(-torch.expm1(share))
    return torch.diff(torch.stack(beginnings), prepend=whole.new_zeros(1))  # (T,)
