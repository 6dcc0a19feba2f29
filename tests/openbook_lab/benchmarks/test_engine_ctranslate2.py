"""CTranslate2 as a contestant: it searches each passage alone, and finds what the engine's own search finds."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from openbook.errors import SettingInvalid
from openbook_lab.benchmarks.engine import Plan, measure_engine
from openbook_lab.benchmarks.engine_contestants import Openbook
from openbook_lab.benchmarks.engine_ctranslate2 import CTranslate2
from openbook_lab.benchmarks.engine_work import Work

WORK = Work(n_docs=3, length=20, new_tokens=6, num_beams=3)


@pytest.mark.parametrize("checkpoint", ["tiny_checkpoint", "tiny_bart_checkpoint"])
def test_its_search_over_each_passage_finds_the_same_tokens(
    checkpoint: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra bench")
    folder = shutil.copytree(request.getfixturevalue(checkpoint), tmp_path / "tiny")
    for seed in range(4):
        work = Work(n_docs=5, length=20, new_tokens=8, num_beams=4, seed=seed)
        found = CTranslate2(folder, "float32", work).run("sequence fast")
        assert found.tokens == Openbook(folder, "float32", work).run("sequence fast").tokens
        assert len(found.tokens) == 5 * 8, "no answer may end before"
        assert found.seconds > 0


def test_each_number_of_threads_has_its_translator_and_the_answer_stays(tiny_checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra bench")
    contestant = CTranslate2(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"), "int8", WORK)
    before = torch.get_num_threads()
    answers, translators = [], []
    try:
        for threads in (1, 1, 2):
            torch.set_num_threads(threads)
            answers.append(contestant.run("sequence fast").tokens)
            translators.append(contestant._translator(threads))
    finally:
        torch.set_num_threads(before)
    assert translators[0] is translators[1]
    assert translators[1] is not translators[2]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == WORK.n_docs * WORK.new_tokens


@pytest.mark.timeout(600)
def test_a_report_has_its_cells_where_it_answers_and_a_column_against_it(tiny_checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra bench")
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny")
    threads = torch.get_num_threads()
    plan = Plan(
        ("openbook float32", "ctranslate2 int8"),
        ("token greedy", "sequence fast"),
        (1,),
        repeats=1,
        work=WORK,
        limit_s=0.001,
    )
    try:
        report = measure_engine({"mini": folder}, plan, lambda *_: None)
    finally:
        torch.set_num_threads(threads)
    answers, memory, _, shares = report.as_json()["tables"]
    assert [(row["mode"], row["contestant"]) for row in answers["rows"]] == [
        ("token greedy", "openbook float32"),
        ("sequence fast", "openbook float32"),
        ("sequence fast", "ctranslate2 int8"),
    ]
    greedy, ours, theirs = (row["x ctranslate2 int8"] for row in answers["rows"])
    assert greedy is None
    assert ours > 0
    assert theirs == 1.0
    assert [row["contestant"] for row in memory["rows"]] == ["openbook float32"]
    assert [row["mode"] for row in shares["rows"]] == ["token greedy"]


def test_a_plan_that_leaves_it_nothing_to_do_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="ctranslate2 int8 can be asked for sequence fast alone"):
        Plan(("ctranslate2 int8",), ("token beams",), (1,), repeats=1, work=WORK)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(SettingInvalid, match=r"pip install 'openbook-lab\[ctranslate2\]'"):
        Plan(("ctranslate2 int8",), ("sequence fast",), (1,), repeats=1, work=WORK)
