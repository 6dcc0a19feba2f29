"""The contestants of `bench causal` do the same work on the same prompts."""

from dataclasses import replace
from pathlib import Path

import pytest

from openbook.errors import SettingInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.benchmarks.causal import CausalContestants, CausalWork
from tests.fixtures.causal import PROMPT, write_causal

WORK = CausalWork(n_docs=2, length=60, question=8, new_tokens=4)


def test_transformers_says_of_each_prompt_what_the_service_says_of_each_passage(tmp_path: Path) -> None:
    # with refusals folded into the empty answer, other answers would be compared
    folder = write_causal(tmp_path / "mine", prompt=replace(PROMPT, refusals=()))
    contestants = CausalContestants(load_checkpoint(folder), folder, WORK)
    said = {name: answer() for name, answer in contestants.ways(3).items()}
    kept = contestants.generator.kept()
    assert (kept.hits, kept.misses) == (6, 2 + 4), "passages that are kept are not read again"
    expected = set(said["transformers generate"])
    assert len(expected) == WORK.n_docs
    for name, answers in said.items():
        assert all(len(answer) == WORK.new_tokens for answer in answers), "no answer may end before"
        if "token" not in name:
            assert set(answers) == expected, name
    assert said["openbook token"] == said["openbook token, passages kept"]
    assert said["openbook token"] == said["openbook token, passages kept, stepwise"]


def test_a_turn_has_texts_of_its_own_that_are_the_same_in_every_run(tiny_causal_checkpoint: Path) -> None:
    tokenizer = load_checkpoint(tiny_causal_checkpoint).generator_tokenizer
    assert WORK.texts(tokenizer, 1) == WORK.texts(tokenizer, 1) != WORK.texts(tokenizer, 2)


def test_what_is_not_causal_is_refused(tiny_checkpoint: Path) -> None:
    with pytest.raises(SettingInvalid, match="no causal checkpoint"):
        CausalContestants(load_checkpoint(tiny_checkpoint), tiny_checkpoint, WORK)
