"""What an answer would be without a passage: the same as a fresh answer over the others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openbook.entities import Answer, AnswerOptions, IndexVersion, RetrievedPassages, Source, StageSeconds
from openbook.errors import InvalidRequest
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine, Searched
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.readers import write_pointer
from tests.openbook.rag.conftest import Case, make_case

QUESTION = "who is the president of peru ?"
SOURCE = Source(IndexVersion("none", 0, None), "", "none", "dense", (), StageSeconds())
# A prior, and log-probs, in float32.
CLOSE = {"abs": 2e-4}
WAYS: list[dict[str, Any]] = [
    {"model": "token"},
    {"model": "token", "num_beams": 3, "num_answers": 3},
    {"model": "sequence"},
    {"model": "sequence", "num_beams": 3, "num_answers": 2},
    {"model": "sequence", "decoding": "fast", "num_beams": 2},
]
KINDS = ("tiny_checkpoint", "tiny_t5_checkpoint", "tiny_causal_checkpoint", "passage", "shared")
Engines = Callable[[str], RagEngine]


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engines:
    made: dict[str, RagEngine] = {}

    def of(kind: str) -> RagEngine:
        if kind not in made:
            if kind in ("passage", "shared"):
                readers: dict[str, Path] = request.getfixturevalue("tiny_readers")
                place = tmp_path_factory.mktemp(kind) / kind
                folder = write_pointer(place, next(iter(readers.values())), normalisation=kind)
            else:
                folder = request.getfixturevalue(kind)
            made[kind] = RagEngine(load_checkpoint(folder))
        return made[kind]

    return of


def answers(engine: RagEngine, *cases: Case, **options: Any) -> list[Answer]:
    """To all cases in one batch."""
    retrieved = [RetrievedPassages(tuple(range(len(one.passages))), one.passages, one.doc_scores) for one in cases]
    read = engine.read([one.question for one in cases], Searched(retrieved, SOURCE))
    return engine.answers(read, AnswerOptions(max_new_tokens=6, **options))


def without(case: Case, k: int) -> Case:
    return Case(
        case.question, (*case.passages[:k], *case.passages[k + 1 :]), (*case.doc_scores[:k], *case.doc_scores[k + 1 :])
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("kind", KINDS)
def test_leaving_one_out_is_a_fresh_answer_over_the_others(engines: Engines, kind: str, way: dict[str, Any]) -> None:
    engine, cases = engines(kind), [make_case(10 + number, 4, longest=20) for number in range(2)]
    plain = answers(engine, *cases, **way)
    for case, before, asked in zip(cases, plain, answers(engine, *cases, leave_one_out=True, **way), strict=True):
        assert asked.text == before.text
        assert asked.log_prob == pytest.approx(before.log_prob, **CLOSE)
        assert asked.leave_one_out is not None
        assert [one.rank for one in asked.leave_one_out] == [1, 2, 3, 4]
        for k, one in enumerate(asked.leave_one_out):
            (fresh,) = answers(engine, without(case, k), **way)
            assert (one.passage_id, one.text) == (case.passages[k].passage_id, fresh.text)
            assert one.log_prob == pytest.approx(fresh.log_prob, **CLOSE)
            assert one.no_answer == pytest.approx(fresh.no_answer, **CLOSE)
            posterior = [passage.posterior for passage in fresh.passages]
            posterior.insert(k, 0.0)
            assert list(one.posterior) == pytest.approx(posterior, **CLOSE)
        assert before.leave_one_out is None


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_lone_passage_there_is_nothing_to_leave_out(engines: Engines, kind: str) -> None:
    (found,) = answers(engines(kind), make_case(3, 1), leave_one_out=True)
    assert found.leave_one_out == ()


@pytest.mark.parametrize("kind", ["tiny_checkpoint", "passage"])
def test_many_passages_are_left_out_as_few_are(engines: Engines, kind: str) -> None:
    """More hypotheses than the decoder computes at a time."""
    case = make_case(5, 15, longest=4)
    (found,) = answers(engines(kind), case, leave_one_out=True)
    assert found.leave_one_out is not None
    for k in (0, 14):
        (fresh,) = answers(engines(kind), without(case, k))
        assert found.leave_one_out[k].text == fresh.text
        assert found.leave_one_out[k].log_prob == pytest.approx(fresh.log_prob, **CLOSE)


def test_passages_that_are_left_out_count_as_not_retrieved(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    options = AnswerOptions(n_docs=4, max_new_tokens=6, leave_one_out=True)
    (whole,) = engine.answer([QUESTION], snapshot, options)
    assert whole.leave_one_out is not None
    for one in whole.leave_one_out:
        (fresh,) = engine.answer([QUESTION], snapshot, replace(options, without=(one.passage_id, "no such passage")))
        kept = [passage for passage in whole.passages if passage.passage_id != one.passage_id]
        assert [passage.passage_id for passage in fresh.passages] == [passage.passage_id for passage in kept]
        assert [passage.rank for passage in fresh.passages] == [1, 2, 3]
        assert [passage.doc_score for passage in fresh.passages] == [passage.doc_score for passage in kept]
        shares = [passage.prior for passage in kept]
        assert [passage.prior for passage in fresh.passages] == pytest.approx([one / sum(shares) for one in shares])
        assert (fresh.text, fresh.log_prob) == (one.text, pytest.approx(one.log_prob, **CLOSE))
    with pytest.raises(InvalidRequest, match="leaves none to read"):
        engine.answer([QUESTION], snapshot, replace(options, without=tuple(one.passage_id for one in whole.passages)))
