"""The engine beside transformers' own RAG: same work, same answers, and figures that can be."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, DPRConfig

from openbook.errors import SettingInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.benchmarks import engine_work, machine_limits
from openbook_lab.benchmarks.children import silent
from openbook_lab.benchmarks.engine import Plan, Sizes, measure_engine
from openbook_lab.benchmarks.engine_contestants import CTranslate2, Openbook, Transformers, peak_bytes
from openbook_lab.benchmarks.engine_work import Work, modes_of, write_shapes

WORK = Work(n_docs=3, length=20, new_tokens=6, num_beams=3)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Whatever a test measures with, the next one has torch's threads as they were."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_contestants_do_the_same_work_and_float32_gives_the_same_answer(tiny_checkpoint: Path) -> None:
    ours, theirs = Openbook(tiny_checkpoint, "float32", WORK), Transformers(tiny_checkpoint, "float32", WORK)
    for mode in modes_of("transformers float32"):
        mine, other = ours.run(mode), theirs.run(mode)
        assert mine.tokens == other.tokens
        searches = WORK.n_docs if mode == "sequence fast" else 1
        assert len(mine.tokens) == searches * WORK.new_tokens, "no answer may end before"
        assert mine.encode_s is not None
        assert mine.start_s is not None
        assert 0 < mine.encode_s + mine.start_s < mine.seconds
    assert ours.run("token stepwise").tokens == ours.run("token greedy").tokens


def test_the_counts_are_those_of_the_matrices(tiny_checkpoint: Path) -> None:
    sizes = Sizes.of(tiny_checkpoint)
    model = Openbook(tiny_checkpoint, "float32", WORK)._generator.model
    # keys and values of the passage are computed once, so no step multiplies with their matrices
    matrices = sum(
        parameter.numel()
        for name, parameter in type(model)(model.config).named_parameters()
        if name.startswith("model.decoder.layers") and parameter.dim() == 2
    )
    once = sizes.decoder_layers * 2 * sizes.width**2
    assert sizes.step_weights == matrices - once + sizes.width * sizes.vocabulary


def test_the_shape_of_the_paper_comes_from_an_installed_checkpoint_and_is_not_mute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = {"d_model": 256, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}
    monkeypatch.setattr(engine_work, "BartConfig", partial(BartConfig, **narrow))
    shorter = partial(DPRConfig, hidden_size=12, intermediate_size=8, num_hidden_layers=1)
    monkeypatch.setattr(engine_work, "DPRConfig", shorter)
    folder = write_shapes(silent, ["bart-large"], tmp_path, Path("openbook-mini"))["bart-large"]
    assert load_checkpoint(folder).generator_tokenizer.encode("Lima")
    said = Openbook(folder, "float32", replace(WORK, new_tokens=12)).run("sequence fast").tokens
    of_passages = [said[first : first + 12] for first in range(0, len(said), 12)]
    assert all(len(set(tokens)) > 4 for tokens in of_passages), "one token for ever would hide what goes wrong"
    assert len(set(of_passages)) == len(of_passages)


def test_memory_is_that_of_this_process() -> None:
    assert peak_bytes() > 50e6


@pytest.mark.parametrize("checkpoint", ["tiny_checkpoint", "tiny_bart_checkpoint"])
def test_ctranslate2_finds_the_same_tokens_over_each_passage(
    checkpoint: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")
    folder = shutil.copytree(request.getfixturevalue(checkpoint), tmp_path / "tiny")
    for seed in range(4):
        work = Work(n_docs=5, length=20, new_tokens=8, num_beams=4, seed=seed)
        found = CTranslate2(folder, "float32", work).run("sequence fast")
        assert found.tokens == Openbook(folder, "float32", work).run("sequence fast").tokens
        assert len(found.tokens) == 5 * 8, "no answer may end before"
        assert found.seconds > 0


def test_ctranslate2_gives_the_same_answer_with_any_number_of_threads(tiny_checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")
    contestant = CTranslate2(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"), "int8", WORK)
    answers, translators = [], []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        answers.append(contestant.run("sequence fast").tokens)
        translators.append(contestant._translator(threads))
    assert translators[0] is translators[1]
    assert translators[1] is not translators[2]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == WORK.n_docs * WORK.new_tokens


@pytest.mark.timeout(600)
def test_a_report_has_ctranslate2_where_it_answers_and_a_column_for_it(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")
    monkeypatch.setattr(machine_limits, "SECONDS", 0.001)
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny")
    contestants, modes = ("openbook float32", "ctranslate2 int8"), ("token stepwise", "sequence fast")
    plan = Plan(contestants, modes, (1,), repeats=1, work=WORK)  # type: ignore[arg-type]
    report = measure_engine({"mini": folder}, plan, silent)
    answers, memory, products, _, neighbours, shares = report.as_json()["tables"]
    assert [(row["mode"], row["contestant"]) for row in answers["rows"]] == [
        ("token stepwise", "openbook float32"),
        ("sequence fast", "openbook float32"),
        ("sequence fast", "ctranslate2 int8"),
    ]
    greedy, ours, theirs = (row["x ctranslate2 int8"] for row in answers["rows"])
    assert greedy is None
    assert ours > 0
    assert theirs == 1.0
    assert [row["contestant"] for row in memory["rows"]] == ["openbook float32"]
    assert [row["contestant"] for row in products["rows"]] == ["openbook float32"]
    assert [row["mode"] for row in shares["rows"]] == ["token stepwise"]
    assert len(neighbours["rows"]) == 1


@pytest.mark.slow
def test_a_report_has_both_greedy_searches_and_says_how_steady_it_was(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_limits, "SECONDS", 0.001)
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny")
    plan = Plan(("openbook float32",), ("token greedy", "token stepwise"), (1,), repeats=2, work=WORK)
    report = measure_engine({"mini": folder}, plan, silent).as_json()
    answers, _, products, _, neighbours, shares = report["tables"]
    assert products["rows"][0]["products"].split()[0] in ("packed", "plain")
    assert [row["mode"] for row in answers["rows"]] == ["token greedy", "token stepwise"]
    assert [row["mode"] for row in shares["rows"]] == ["token stepwise"]
    busy = [row for row in answers["rows"] if "too busy" in row["spread"]]
    assert report["facts"]["rows for which the machine was too busy"] == len(busy)
    assert all(2 <= row["answers"] <= 8 for row in answers["rows"])
    assert all(row["answers"] == 8 for row in busy[-1:])
    (rates,) = neighbours["rows"]
    assert 0 < rates["slowest"] <= rates["during, median"]


def test_a_plan_that_leaves_ctranslate2_nothing_to_do_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="ctranslate2 int8 can be asked for sequence fast alone"):
        Plan(("ctranslate2 int8",), ("token beams",), (1,), repeats=1, work=WORK)


def test_without_ctranslate2_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(SettingInvalid, match=r"pip install 'openbook-lab\[ctranslate2\]'"):
        Plan(("ctranslate2 int8",), ("sequence fast",), (1,), repeats=1, work=WORK)
