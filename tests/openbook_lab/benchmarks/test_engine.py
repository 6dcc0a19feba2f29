"""The engine beside transformers' own RAG: same work, same answers, and figures that can be."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, DPRConfig

from openbook.rag.checkpoint import load_checkpoint, locate
from openbook_lab.benchmarks.children import silent
from openbook_lab.benchmarks.engine import Plan, measure_engine
from openbook_lab.benchmarks.engine_contestants import Openbook, Transformers
from openbook_lab.benchmarks.engine_work import Work, modes_of, write_paper_size

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
    assert ours.run("token stepwise").tokens == ours.run("token greedy").tokens


def test_the_shape_of_the_paper_comes_from_an_installed_checkpoint_and_is_not_mute(tmp_path: Path) -> None:
    bart = BartConfig(d_model=256, encoder_ffn_dim=1024, decoder_ffn_dim=1024, forced_eos_token_id=None)
    bert = DPRConfig(hidden_size=12, intermediate_size=8, num_hidden_layers=1)
    folder = tmp_path / "bart-large"
    write_paper_size(folder, locate(Path("openbook-mini-bart")), bert=bert, bart=bart)
    assert load_checkpoint(folder).generator_tokenizer.encode("Lima")
    said = Openbook(folder, "float32", replace(WORK, new_tokens=12)).run("sequence fast").tokens
    of_passages = [said[first : first + 12] for first in range(0, len(said), 12)]
    assert all(len(set(tokens)) > 4 for tokens in of_passages), "one token for ever would hide what goes wrong"
    assert len(set(of_passages)) == len(of_passages)


@pytest.mark.slow
def test_a_report_has_both_greedy_searches_and_says_how_steady_it_was(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny")
    plan = Plan(("openbook float32",), ("token greedy", "token stepwise"), (1,), repeats=2, work=WORK)
    report = measure_engine({"mini": folder}, plan, silent).as_json()
    answers, _ = report["tables"]
    assert [row["mode"] for row in answers["rows"]] == ["token greedy", "token stepwise"]
    busy = [row for row in answers["rows"] if "too busy" in row["spread"]]
    assert report["facts"]["rows for which the machine was too busy"] == len(busy)
    assert all(2 <= row["answers"] <= 8 for row in answers["rows"])
    assert all(row["answers"] == 8 for row in busy[-1:])
