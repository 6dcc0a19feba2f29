"""Posteriors and thresholds, worked out by hand, and the whole experiment on a tiny checkpoint."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.settings import Settings
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.posteriors import (
    Answered,
    Outcome,
    areas_table,
    posteriors_table,
    study_posteriors,
    thresholds_table,
)
from tests.fixtures.evaluation import QUESTIONS, mean, write_lines

LIMA = Question("what is the capital of peru", ("Lima",))
HOLDS, LACKS = Passage("1", "Peru", "its capital is Lima ."), Passage("2", "Chile", "a long border .")


def outcome(kind: str, log_prob: float, *, held: bool = True, no_answer: float | None = None) -> Outcome:
    return Outcome(kind, GivenAnswer("x", log_prob, (1.0,), no_answer), held)  # type: ignore[arg-type]


def test_a_right_answer_is_traced_to_the_top_posterior_and_the_top_prior() -> None:
    every = [
        Answered(LIMA, GivenAnswer("lima", -0.1, (0.2, 0.8)), (LACKS, HOLDS)),  # the posterior finds it
        Answered(LIMA, GivenAnswer("lima", -0.1, (0.9, 0.1)), (LACKS, HOLDS)),  # neither does
        Answered(LIMA, GivenAnswer("lima", -0.1, (0.6, 0.4)), (HOLDS, LACKS)),  # both do
        Answered(LIMA, GivenAnswer("lima", -0.1, (0.3, 0.7)), (HOLDS, LACKS)),  # the prior did
        Answered(LIMA, GivenAnswer("quito", -0.1, (0.9, 0.1)), (LACKS, HOLDS)),  # wrong: does not count
    ]
    right, elsewhere = posteriors_table({"RAG-Token": every}).rows
    assert (right[2], mean(right[3]), mean(right[4]), mean(right[5])) == (4, 50.0, 50.0, 0.0)
    assert (elsewhere[2], mean(elsewhere[3]), mean(elsewhere[4])) == (2, 0.0, 50.0)


def test_the_areas_tell_what_the_book_answers_from_what_it_does_not() -> None:
    every = [
        outcome("right", -0.1),
        outcome("right", -0.5),
        outcome("wrong", -0.3, held=True),
        outcome("wrong", -9.0, held=False),  # its answer was not retrieved: nothing to be told apart by reading
        outcome("unanswerable", -0.4, held=False),
        outcome("left out", -2.0, held=False),
    ]
    rows = {row[2]: row for row in areas_table({"RAG-Token": every}).rows}
    assert set(rows) == {
        "answer retrieved / unanswerable",
        "answer retrieved / article left out",
        "right / wrong",
        "right / anything else",
    }
    assert mean(rows["answer retrieved / unanswerable"][5]) == pytest.approx(2 / 3)
    assert mean(rows["answer retrieved / article left out"][5]) == 1.0
    assert mean(rows["right / wrong"][5]) == pytest.approx(3 / 4)
    assert mean(rows["right / anything else"][5]) == pytest.approx(6 / 8)
    assert {row[1] for row in rows.values()} == {"log_prob"}


def test_the_probability_of_no_answer_is_a_score_where_it_is_offered() -> None:
    every = [outcome("right", -1.0, no_answer=0.1), outcome("wrong", -0.5, no_answer=0.9)]
    scores = {row[1]: mean(row[5]) for row in areas_table({"m": every}).rows if row[2] == "right / wrong"}
    assert scores == {"log_prob": 0.0, "no_answer": 1.0}


def test_a_threshold_keeps_a_share_of_right_answers_and_some_of_the_others() -> None:
    right = [outcome("right", -float(number)) for number in range(1, 11)]
    others = [outcome("wrong", -2.5), outcome("wrong", -7.0), outcome("unanswerable", -20.0)]
    (table,) = thresholds_table({"m": [*right, *others]})
    rows = {row[1]: row for row in table.rows}
    assert rows[100.0] == ("log_prob >= -10.000", 100.0, 100.0, 0.0, None)
    assert rows[90.0] == ("log_prob >= -9.000", 90.0, 100.0, 0.0, None)
    assert rows[50.0] == ("log_prob >= -5.000", 50.0, 50.0, 0.0, None)


def about_kenya(questions: Path, passages: Path, encoder: Path, work: Path) -> Options:
    return Options(
        questions=(questions,),
        passages=(passages,),
        held_out=("Kenya",),
        encoder=encoder,
        n_docs=6,
        work=work,
    )


def test_each_question_is_asked_of_the_book_with_and_without_its_article(
    checkpoint_folder: Path, tiny_encoder: Path, question_file: Path, passage_file: Path, tmp_path: Path
) -> None:
    settings = Settings(checkpoint=str(checkpoint_folder))
    options = about_kenya(question_file, passage_file, tiny_encoder, tmp_path)
    runs, written = [], set()
    for _ in range(2):
        runs.append(study_posteriors(settings, replace(options, unanswerable=(question_file,))))
        written.add(next(tmp_path.glob("answers-*.jsonl")).read_text())
    (report, outcomes), (again, _) = runs
    assert report.as_json()["tables"] == again.as_json()["tables"]
    assert report.facts["unanswerable"] == 1
    titles = [table.title for table in report.tables]
    assert titles[:2] == ["Which passage an answer is from", "Answerable or not"]
    (log,) = written
    assert len(log.splitlines()) == 2 * 5
    assert list(outcomes) == ["RAG-Token, greedy", "RAG-Sequence, thorough, greedy"]
    for of_model in outcomes.values():
        assert [one.kind for one in of_model][2:] == ["unanswerable", "left out", "left out"]
        # three of the six passages are left, and none of them knows nairobi
        assert [len(one.given.posterior) for one in of_model] == [6, 6, 6, 4, 4]
        assert [one.held for one in of_model[2:]] == [False, False, False]


def test_the_hybrid_retriever_brings_the_calibrated_no_answer(
    question_file: Path, passage_file: Path, checkpoint_folder: Path, tiny_encoder: Path, tmp_path: Path
) -> None:
    """Weights that look at no sign: every question has the same no_answer, in the book and without the articles."""
    folder = shutil.copytree(checkpoint_folder, tmp_path / "calibrated")
    facts = json.loads((folder / "openbook.json").read_text())
    weights = {"bias": math.log(3), "empty": 0.0, "coverage": 0.0}
    facts |= {"prior": {"dense": 0.5, "bm25": 0.5}, "no_answer": {"threshold": 0.5, "weights": weights}}
    (folder / "openbook.json").write_text(json.dumps(facts))
    options = about_kenya(question_file, passage_file, tiny_encoder, tmp_path)
    settings = Settings(checkpoint=str(folder))
    report, outcomes = study_posteriors(settings, replace(options, one_retriever="hybrid"))
    assert report.facts["retriever"] == "hybrid"
    given = [one.given.no_answer for of_model in outcomes.values() for one in of_model]
    assert given == pytest.approx([0.75] * len(given))
    assert {one.kind for one in outcomes["RAG-Token, greedy"]} >= {"left out"}


def test_a_book_of_nothing_but_the_articles_asked_about_is_not_emptied(
    checkpoint_folder: Path, tiny_encoder: Path, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "peru.jsonl", [one for one in QUESTIONS if one["title"] == "Peru"])
    options = Options(questions=(file,), every=True, encoder=tiny_encoder, n_docs=1, work=tmp_path)
    _, outcomes = study_posteriors(Settings(checkpoint=str(checkpoint_folder)), options)
    kinds = {one.kind for one in outcomes["RAG-Token, greedy"]}
    assert kinds
    assert "left out" not in kinds
