"""Work in groups: a question with many passages and beams takes no more memory at a time, and has the same answers."""

import sys

import pytest
import torch

from openbook.rag import bart_decoder, continuations, decoding
from tests.openbook.rag.conftest import Hypotheses, Subject, assert_same, make_case

MODES = {"token": ("token", "thorough"), "thorough": ("sequence", "thorough"), "fast": ("sequence", "fast")}


def work_in_groups(monkeypatch: pytest.MonkeyPatch, hypotheses: int, followed: int) -> None:
    for module in (bart_decoder, continuations, decoding):
        monkeypatch.setattr(module, "MAX_HYPOTHESES", hypotheses)
    monkeypatch.setattr(decoding, "MAX_FOLLOWED", followed)


def assert_all_same(found: Hypotheses, expected: Hypotheses) -> None:
    both = (sorted(some, key=lambda one: one.token_ids) for some in (found, expected))
    for one, other in zip(*both, strict=True):
        assert_same(one, other, tolerance=1e-5)


@pytest.mark.parametrize(("hypotheses", "followed"), [(1, 1), (7, 2)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tiny", "tiny_t5"])
def test_answers_in_groups_are_those_of_all_passages_at_once(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    mode: str,
    hypotheses: int,
    followed: int,
) -> None:
    """Two questions with five passages and three beams each; groups end within a question, and reach into the next."""
    subject: Subject = request.getfixturevalue(kind)
    cases = [make_case(seed, 5, longest=12) for seed in (301, 302)]
    model, how = MODES[mode]
    options = {"model": model, "decoding": how, "num_beams": 3, "max_new_tokens": 6}
    work_in_groups(monkeypatch, sys.maxsize, sys.maxsize)
    at_once = subject.decode(*cases, **options)
    work_in_groups(monkeypatch, hypotheses, followed)
    for found, expected in zip(subject.decode(*cases, **options), at_once, strict=True):
        assert_all_same(found, expected)


def test_scores_in_groups_are_those_of_all_passages_at_once(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(303, 5)
    targets = [(40, 41, 42, tiny.generator.eos), (40, 43), (50,)]
    work_in_groups(monkeypatch, sys.maxsize, sys.maxsize)
    at_once = tiny.score(case, targets, "sequence")
    work_in_groups(monkeypatch, 1, 2)
    assert_all_same(tiny.score(case, targets, "sequence"), at_once)


def test_candidates_too_unlikely_for_a_float32_are_the_same_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = torch.Generator().manual_seed(1)
    logits = 60 * torch.randn(2, 5, 3, 300, generator=dice)  # (G, K, B, V)
    log_prior = torch.log_softmax(torch.randn(2, 5, generator=dice), dim=-1)
    scores = -90 * torch.rand(2, 3, generator=dice)
    at_once = continuations.best_continuations(logits, log_prior, scores, 6)
    monkeypatch.setattr(continuations, "MAX_HYPOTHESES", 12)
    in_groups = continuations.best_continuations(logits, log_prior, scores, 6)
    assert torch.equal(in_groups.tokens, at_once.tokens)
    assert torch.equal(in_groups.sources, at_once.sources)
    assert torch.allclose(in_groups.scores, at_once.scores)
