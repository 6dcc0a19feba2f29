"""The contestants of `bench causal` do the same work on the same prompts."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from openbook.errors import SettingInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.benchmarks.causal_contestants import AskedPrompts, CausalWork, contestants
from tests.fixtures.causal import PROMPT, write_causal

WORK = CausalWork(n_docs=2, length=60, question=8, new_tokens=4)


def test_transformers_says_of_each_prompt_what_the_service_says_of_each_passage(tmp_path: Path) -> None:
    # with refusals folded into the empty answer, other answers would be compared
    folder = write_causal(tmp_path / "mine", prompt=replace(PROMPT, refusals=()))
    generator, ways = contestants(load_checkpoint(folder), folder, WORK, ())
    passages, question = WORK.texts(generator.tokenizer, 3)
    rows = [[*generator.wording.passage(one), *generator.wording.question(question)] for one in passages]
    prompts = AskedPrompts(passages, question, list(generator.wording.shared), rows)
    said = {}
    for way in ways:
        way.prepare(prompts)
        said[way.name] = way.answer(prompts)
    kept = generator.kept()
    assert (kept.hits, kept.misses) == (6, 4 + 6), "passages that are kept are not read again"
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


def test_what_cannot_be_measured_is_refused(
    tiny_checkpoint: Path, tiny_causal_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingInvalid, match="no causal checkpoint"):
        contestants(load_checkpoint(tiny_checkpoint), tiny_checkpoint, WORK, ())
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(SettingInvalid, match=r"pip install .openbook-lab\[llama-cpp\]"):
        contestants(load_checkpoint(tiny_causal_checkpoint), tiny_causal_checkpoint, WORK, (Path("any.gguf"),))
