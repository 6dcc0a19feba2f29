"""A span reader as the generator: an answer is a place in a passage, and its probability a sum over all places.

The reader reads each passage with the question once and gives every token a start and an end; `spans` does the rest.
Nothing is searched: each answer of each passage counts under all of them. So RAG-Sequence's thorough and fast decoding
are one thing here, beams change nothing, and RAG-Token finds its best answer, not a greedy one.

The empty answer is the null. It is never given: `no_answer` says how likely it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from openbook.entities import AnswerOptions, Hypothesis, ModelKind, Passage, Quote
from openbook.errors import CheckpointInvalid
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.encoder_head import PADDING_POSITIONS
from openbook.rag.generator import Generator
from openbook.rag.listening import NOBODY, Certain
from openbook.rag.marginal import without
from openbook.rag.reader_wording import AskedPassage, ReaderWording
from openbook.rag.span_networks import open_network
from openbook.rag.spans import (
    Beginning,
    ScoredPassage,
    SpanTree,
    score_spans,
    steps_of_sequence,
    steps_of_token,
)


@dataclass(frozen=True, slots=True)
class ReadSpans:
    """What was read of R passages: the passage in tokens, and the scores of its spans."""

    asked: list[AskedPassage]
    scored: list[ScoredPassage]


class PointedState:
    """The spans of each question, once their number of passages is known."""

    def __init__(self, read: ReadSpans) -> None:
        self.read = read
        self._trees: list[SpanTree] = []

    def trees(self, n_docs: int) -> list[SpanTree]:
        """Q of them, of K passages each."""
        if not self._trees:
            scored = self.read.scored
            self._trees = [SpanTree(scored[first : first + n_docs]) for first in range(0, len(scored), n_docs)]
        return self._trees


class Pointer(Generator):
    """Answers with spans of the passages, as any AutoModelForQuestionAnswering finds them."""

    def __init__(self, checkpoint: Checkpoint, *, keep_weights: bool = True) -> None:
        """Raises CheckpointInvalid for a reader that cannot be used, SettingInvalid for a precision that it has not."""
        if checkpoint.facts.reader is None:
            raise CheckpointInvalid(checkpoint=checkpoint.facts.name, reason="it has no reader.")
        name = checkpoint.facts.name
        self.tokenizer = checkpoint.generator_tokenizer
        if self.tokenizer.sep_token_id is None:
            raise CheckpointInvalid(checkpoint=name, reason="its reader's tokenizer has no separator.")
        self.eos: int = self.tokenizer.sep_token_id
        self.stops = (self.eos,)
        self.shortest_answer = 1
        # a longer answer than any span is not there, and asking for it does no harm
        self.longest_answer = None
        self.quotes = True
        self._normalisation = checkpoint.facts.reader.normalisation
        self.network = open_network(checkpoint, keep_weights=keep_weights)
        positions = positions_of(checkpoint.generator, self.tokenizer)
        self.wording = ReaderWording(name, self.tokenizer, checkpoint.facts.reader, positions)
        self.why_not = f"No passage holds these words as one span of {self.wording.longest_span} tokens or fewer."

    @torch.inference_mode()
    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> ReadSpans:
        asked = self.wording.ask(questions, passages)
        logits = iter(self.network([window for one in asked for window in one.windows]))
        scored = []
        for one in asked:
            spans, null = score_windows(one, [next(logits) for _ in one.windows], self.wording.longest_span)
            scored.append(ScoredPassage(one.firsts, one.keys, one.rooms, spans, float(null)))
        return ReadSpans(asked, scored)

    def n_read(self, encoded: ReadSpans) -> list[int]:
        return [sum(len(window.ids) for window in one.windows) for one in encoded.asked]

    def texts(self, encoded: ReadSpans) -> list[Sequence[int]]:
        """None: nothing is guessed."""
        return []

    def start(self, encoded: ReadSpans) -> PointedState:
        return PointedState(encoded)

    def decode(
        self,
        start: PointedState,
        log_prior: Tensor,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Mapping[int, Certain] = NOBODY,
        texts: Sequence[Sequence[int]] = (),
    ) -> list[tuple[Hypothesis, ...]]:
        answers = []
        for number, (prior, tree) in enumerate(zip(log_prior, start.trees(log_prior.shape[1]), strict=True)):
            between_steps()
            asked = start.read.asked[number * len(prior) : (number + 1) * len(prior)]
            best, *others = self._best(asked, tree, prior, options, options.num_answers)
            if options.model == "token" and number in listeners:
                listeners[number](best)
            if options.leave_one_out and len(prior) > 1:
                priors = [without(prior, left) for left in range(len(prior))]  # K of (K,)
                best = replace(best, without=tuple(self._best(asked, tree, one, options, 1)[0] for one in priors))
            answers.append((best, *others))
        return answers

    def _best(
        self, asked: Sequence[AskedPassage], tree: SpanTree, prior: Tensor, options: AnswerOptions, count: int
    ) -> list[Hypothesis]:
        """The `count` best answers to one question: prior (K,)."""
        weights = tree.weights(prior, self._normalisation)  # (K,)
        found: list[Beginning | None] = [
            one for one, _ in tree.best(options.model, weights, count, options.max_new_tokens)
        ]
        # passages without a token have nothing else to say
        return [self._hypothesis(asked, tree, weights, one, options.model) for one in found or [None]]

    def score(
        self,
        start: PointedState,
        log_prior: Tensor,
        targets: Sequence[tuple[int, ...]],
        model: ModelKind,
        between_steps: BetweenSteps = nothing,
    ) -> list[tuple[Hypothesis, ...]]:
        scored = []
        for number, (prior, tree) in enumerate(zip(log_prior, start.trees(log_prior.shape[1]), strict=True)):
            between_steps()
            asked = start.read.asked[number * len(prior) : (number + 1) * len(prior)]
            weights = tree.weights(prior, self._normalisation)  # (K,)
            of_question = []
            for target in targets:
                forms = self._forms(target)
                found = next((one for form in forms if (one := tree.find(form)) is not None), None)
                if found is None and forms:
                    impossible = Hypothesis(target, -torch.inf, (-torch.inf,), (tuple(weights.tolist()),))
                    of_question.append(impossible)
                else:
                    of_question.append(self._hypothesis(asked, tree, weights, found, model))
            scored.append(tuple(of_question))
        return scored

    def empty_log_prob(self, start: PointedState, log_prior: Tensor) -> Tensor:
        both = zip(start.trees(log_prior.shape[1]), log_prior, strict=True)
        empty = [tree.empty_log_prob(tree.weights(prior, self._normalisation)) for tree, prior in both]
        return torch.tensor(empty, dtype=torch.float64)

    def said(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        """The keys of each target in each of its forms, every form with the end behind it."""
        ended = [[(*form, self.eos) for form in self.wording.forms(target)] for target in targets]
        return [tuple(key for form in forms for key in form) or (self.eos,) for forms in ended]

    def _forms(self, target: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The forms that `said` put together; none of the empty answer."""
        ends = [place for place, key in enumerate(target) if key == self.eos]
        forms = [target[first:end] for first, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)]
        return [form for form in forms if form]

    def _hypothesis(
        self,
        asked: Sequence[AskedPassage],
        tree: SpanTree,
        weights: Tensor,
        beginning: Beginning | None,
        model: ModelKind,
    ) -> Hypothesis:
        """The answer in the words of the place where it is likeliest: weights (K,)."""
        steps = steps_of_sequence if model == "sequence" else steps_of_token
        log_probs, posterior = steps(tree.shares(beginning), weights)  # (T,), (K, T)
        end = str(self.tokenizer.convert_ids_to_tokens(self.eos))
        ids: tuple[int, ...]
        if beginning is None:
            ids, quote = (self.eos,), Quote("", (end,), ((),) * len(asked))
        else:
            rows, likely = tree.rows(beginning, weights)
            places = list(zip(tree.passages[rows].tolist(), tree.places[rows].tolist(), likely.tolist(), strict=True))
            z, first, _ = places[0]
            tokens = slice(first, first + beginning.length)
            ids, words = asked[z].ids[tokens], _words(asked[z], tokens)
            if beginning.ended:
                ids = (*ids, self.eos)
            spans = [
                _spans(one, {place: share for of_row, place, share in places if of_row == k}, beginning.length)
                for k, one in enumerate(asked)
            ]
            quote = Quote(
                "".join(words).strip(),
                (*words, end) if beginning.ended else words,
                tuple(tuple(of_passage) for of_passage in spans),
                tuple(tuple(of_passage.values()) for of_passage in spans),
            )
        return Hypothesis(
            ids, float(log_probs.sum()), tuple(log_probs.tolist()), tuple(map(tuple, posterior.T.tolist())), quote
        )


def score_windows(asked: AskedPassage, logits: Sequence[Tensor], longest: int) -> tuple[Tensor, Tensor]:
    """The scores of a passage's spans, as in ScoredPassage, and its null: (len, 2) of each window -> (T, L), ().

    A piece of code `x` begins at its first quote: that token's score adds up, by logsumexp, its own start and the start
    of x. It ends at its last quote, likewise. Windows that hold a span give it the largest of their scores, and the
    passage the least of their nulls: one that sees the answer speaks for all.
    """
    spans = torch.full((len(asked.ids), longest), -torch.inf, dtype=torch.float64)  # (T, L)
    for window, of_window in zip(asked.windows, logits, strict=True):
        here = slice(window.first, window.first + window.count)
        starts, ends = of_window[window.start : window.start + window.count].double().unbind(1)  # (T',) each
        # no span begins or ends at x itself
        opens, shuts = (quotes - window.first for quotes in (asked.opens, asked.shuts))
        opens, shuts = opens[(opens >= 0) & (opens + 1 < window.count)], shuts[(shuts >= 1) & (shuts < window.count)]
        starts = starts.index_copy(0, opens, torch.logaddexp(starts[opens], starts[opens + 1]))
        ends = ends.index_copy(0, shuts, torch.logaddexp(ends[shuts], ends[shuts - 1]))
        ends = ends.masked_fill(~asked.closes[here], -torch.inf)
        left = torch.arange(window.count, 0, -1)  # (T',)
        rooms = torch.minimum(asked.rooms[here], left)
        # a copy: the gradient needs what was there
        spans[here] = torch.maximum(spans[here].clone(), score_spans(starts, ends, rooms, longest))
    return spans, torch.stack([of_window[0].double().sum() for of_window in logits]).amin()


def positions_of(model: Any, tokenizer: Any) -> int | None:
    """The longest input of a reader; None where its positions are relative."""
    positions: int | None = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return None
    longest: int = tokenizer.model_max_length
    return min(positions - PADDING_POSITIONS.get(model.config.model_type, 0), longest)


def _words(asked: AskedPassage, tokens: slice) -> tuple[str, ...]:
    """What each token adds to the text, the space before it included."""
    words, before = [], asked.offsets[tokens.start][0]
    for _, end in asked.offsets[tokens]:
        words.append(asked.context[before : max(before, end)])
        before = max(before, end)
    return tuple(words)


def _spans(asked: AskedPassage, places: Mapping[int, float], length: int) -> dict[tuple[int, int], float]:
    """The characters of the passage's text that spans of so many tokens stand on, first to last, none overlapping; with
    the share of each."""
    spans: dict[tuple[int, int], float] = {}
    last = 0
    for place in sorted(places):
        start, end = asked.offsets[place][0] - asked.text_start, asked.offsets[place + length - 1][1] - asked.text_start
        if start >= last:
            spans[start, end] = places[place]
            last = end
    return spans
