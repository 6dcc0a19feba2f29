"""The exact marginal over spans, held against a listing of every span in plain loops."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import ModelKind
from openbook.rag.spans import (
    Beginning,
    Normalisation,
    ScoredPassage,
    SpanTree,
    score_spans,
    steps_of_sequence,
    steps_of_token,
)
from tests.reference.reference import Tokens
from tests.reference.spans import Pointed, SpanReference

MODELS: tuple[ModelKind, ...] = ("token", "sequence")
ALL = 10_000
LONG = 99

scores = st.floats(-4, 4)


@st.composite
def regions(draw: st.DrawFn) -> tuple[list[int], list[float], list[float]]:
    """Three words: they repeat within a passage and between passages."""
    tokens = draw(st.lists(st.integers(0, 2), max_size=6))
    of_each = st.lists(scores, min_size=len(tokens), max_size=len(tokens))
    return tokens, draw(of_each), draw(of_each)


@st.composite
def pointed(draw: st.DrawFn) -> Pointed:
    title, text = draw(regions()), draw(regions())
    return Pointed(*zip(title, text, strict=True), null=draw(scores))


@st.composite
def references(draw: st.DrawFn) -> SpanReference:
    passages = draw(st.lists(pointed(), min_size=1, max_size=4))
    logits = draw(st.lists(scores, min_size=len(passages), max_size=len(passages)))
    prior = torch.tensor(logits, dtype=torch.float64).softmax(0).tolist()
    return SpanReference(passages, prior, draw(st.integers(1, 4)), draw(st.booleans()))


def tree_of(reference: SpanReference) -> tuple[SpanTree, torch.Tensor]:
    """All spans, and the weights of the passages."""
    normalisation: Normalisation = "shared" if reference.shared else "passage"
    tree = SpanTree([scored(one, reference.longest) for one in reference.passages])
    return tree, tree.weights(torch.tensor(reference.prior, dtype=torch.float64).log(), normalisation)


def scored(passage: Pointed, longest: int) -> ScoredPassage:
    """With a token between title and text that no span may hold."""
    title, text = passage.regions
    keys = torch.tensor([*title, 7, *text])
    left = [*range(len(title), 0, -1), 0, *range(len(text), 0, -1)]
    rooms = torch.tensor([min(longest, room) for room in left])
    starts, ends = (
        torch.tensor([*of_title, 9.0, *of_text], dtype=torch.float64)
        for of_title, of_text in (passage.starts, passage.ends)
    )
    return ScoredPassage(keys, keys, rooms, score_spans(starts, ends, rooms, longest), passage.null)


def found_by(tree: SpanTree, weights: torch.Tensor, model: ModelKind) -> dict[Tokens, float]:
    """log p(y | x) of every answer but the empty one."""
    return {words_of(tree, one): log_prob for one, log_prob in tree.best(model, weights, ALL, LONG)}


def words_of(tree: SpanTree, beginning: Beginning) -> Tokens:
    return tuple(tree._windows[beginning.row, : beginning.length].tolist())


def log(probability: float) -> float:
    return math.log(probability)


@given(references())
@settings(max_examples=40)
def test_every_answer_has_the_probability_of_the_listing(reference: SpanReference) -> None:
    tree, weights = tree_of(reference)
    listed = [one for one in reference.every_answer() if one]
    for model, probability in (("sequence", reference.rag_sequence), ("token", reference.rag_token)):
        found = found_by(tree, weights, model)
        assert found == {one: pytest.approx(log(probability(one)), abs=1e-9) for one in listed}
        assert list(found.values()) == sorted(found.values(), reverse=True)
    assert tree.empty_log_prob(weights) == pytest.approx(log(reference.rag_sequence(())), abs=1e-9)
    assert tree.empty_log_prob(weights) == pytest.approx(log(reference.rag_token(())), abs=1e-9)


@given(references(), st.sampled_from(MODELS), st.integers(1, 5))
@settings(max_examples=40)
def test_all_answers_and_the_empty_one_sum_to_one(reference: SpanReference, model: ModelKind, longest: int) -> None:
    """Whole answers, and those that are cut after so many tokens."""
    tree, weights = tree_of(reference)
    for max_tokens in (LONG, longest):
        probabilities = [math.exp(log_prob) for _, log_prob in tree.best(model, weights, ALL, max_tokens)]
        assert math.fsum([*probabilities, math.exp(tree.empty_log_prob(weights))]) == pytest.approx(1.0, abs=1e-9)


@given(references())
@settings(max_examples=40)
def test_steps_and_posteriors_are_those_of_the_listing(reference: SpanReference) -> None:
    tree, weights = tree_of(reference)
    steps: Any
    for model, steps, expected in (
        ("sequence", steps_of_sequence, reference.rag_sequence_posterior),
        ("token", steps_of_token, reference.rag_token_posterior),
    ):
        best: list[tuple[Beginning | None, float]] = [
            *tree.best(model, weights, 5, LONG),
            (None, tree.empty_log_prob(weights)),
        ]
        for beginning, log_prob in best:
            log_probs, posterior = steps(tree.shares(beginning), weights)
            words = () if beginning is None else words_of(tree, beginning)
            assert float(log_probs.sum()) == pytest.approx(log_prob, abs=1e-9)
            for column, of_reference in zip(posterior.T.tolist(), expected(words), strict=True):
                assert column == pytest.approx(of_reference, abs=1e-9)


@given(references(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_the_passages_changes_nothing(reference: SpanReference, dice: Any) -> None:
    order = list(range(len(reference.passages)))
    dice.shuffle(order)
    other = replace(
        reference, passages=[reference.passages[k] for k in order], prior=[reference.prior[k] for k in order]
    )
    for model in MODELS:
        expected = {words: pytest.approx(one, abs=1e-9) for words, one in found_by(*tree_of(reference), model).items()}
        assert found_by(*tree_of(other), model) == expected


def three() -> SpanReference:
    """'a b' stands in two passages, once in a title; 'c' in the third alone."""
    a, b, c = 0, 1, 2

    def passage(title: Sequence[int], text: Sequence[int], best: float) -> Pointed:
        flat = [[best] * len(title), [0.0] * len(text)]
        return Pointed([title, text], flat, flat, null=-1.0)

    passages = [passage([a, b], [c, a], 2.0), passage([], [a, b, a, b], 0.0), passage([], [c], 0.0)]
    return SpanReference(passages, [0.5, 0.3, 0.2], 4, shared=False)


def test_an_answer_that_is_no_span_is_not_found() -> None:
    tree, _ = tree_of(three())
    assert tree.find([0, 1]) is not None
    # across title and text; in no passage; nothing; longer than a span
    assert [tree.find(words) for words in ([1, 2], [2, 2], [], [0, 1, 0, 1, 0])] == [None] * 4


def test_the_places_of_an_answer_come_likeliest_first() -> None:
    tree, weights = tree_of(three())
    beginning = tree.find([0, 1])
    assert beginning is not None
    places = [(int(tree.passages[row]), int(tree.places[row])) for row in tree.rows(beginning, weights)[0]]
    assert places[0] == (0, 0)
    assert sorted(places[1:]) == [(1, 1), (1, 3)]  # behind the token that is in neither title nor text


def test_a_cut_answer_has_the_mass_of_all_that_begin_so() -> None:
    reference = three()
    tree, weights = tree_of(reference)
    cut = {words_of(tree, one): (one.ended, log_prob) for one, log_prob in tree.best("sequence", weights, ALL, 2)}
    expected = math.fsum(w * reference.beginning(z, (0, 1)) for z, w in enumerate(reference.weights()))
    assert cut[0, 1] == (False, pytest.approx(log(expected)))
    assert cut[2,] == (True, pytest.approx(log(reference.rag_sequence((2,)))))


def test_a_reader_that_is_sure_moves_the_shared_prior() -> None:
    own, shared = (tree_of(replace(three(), shared=one))[1] for one in (False, True))
    assert own.tolist() == pytest.approx([0.5, 0.3, 0.2])
    assert float(shared[0]) > 0.9
    assert float(shared.sum()) == pytest.approx(1.0)


def test_passages_without_a_token_leave_the_empty_answer() -> None:
    silent = SpanReference([Pointed([[], []], [[], []], [[], []], 1.0)] * 2, [0.5, 0.5], 3, shared=True)
    tree, weights = tree_of(silent)
    assert [tree.best(model, weights, 3, LONG) for model in MODELS] == [[], []]
    assert tree.empty_log_prob(weights) == pytest.approx(0.0)
