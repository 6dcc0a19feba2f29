import json
from pathlib import Path

import pytest

from tests.fixtures.causal import PROMPT
from tests.fixtures.command_line import QUESTION, Run


def test_an_exported_checkpoint_answers_as_the_one_that_it_came_from(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path, tmp_path: Path
) -> None:
    exported = run("checkpoint", "export", "whole", "--checkpoint", tiny_checkpoint)
    assert (exported.code, exported.out) == (0, "")
    assert exported.err.startswith("wrote tiny@")
    for file in ("config.json", "model.safetensors", "question_encoder_tokenizer", "generator_tokenizer"):
        assert (tmp_path / "whole" / file).exists()
    one, other = (
        run("ask", QUESTION, "--local", "--json", "--indexes", indexes_folder, "--checkpoint", folder).json
        for folder in (tiny_checkpoint, tmp_path / "whole")
    )
    for key in ("answers", "tokens", "passages"):
        assert one[key] == other[key]


def test_a_folder_that_holds_something_is_not_written_into(run: Run, tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    ended = run("checkpoint", "export", "mine", "--checkpoint", tiny_checkpoint)
    assert ended.code == 2
    assert "is not empty" in ended.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_the_mean_of_two_checkpoints_answers(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path, tmp_path: Path
) -> None:
    mean = run("checkpoint", "average", "mean", tiny_checkpoint, tiny_checkpoint, "--name", "middle")
    assert (mean.code, mean.out) == (0, "")
    assert mean.err == "wrote the mean of 2 checkpoints to mean\n"
    asked = run("ask", QUESTION, "--local", "--json", "--indexes", indexes_folder, "--checkpoint", tmp_path / "mean")
    assert asked.json["checkpoint"].startswith("middle@")
    assert run("checkpoint", "average", "other", tiny_checkpoint).code == 2


def test_a_composed_checkpoint_answers_and_takes_a_prompt_of_ones_own(
    run: Run, tiny_checkpoint: Path, tiny_causal_checkpoint: Path, indexes_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompt.json").write_text(json.dumps(PROMPT.content()))
    parts = ("--generator", tiny_causal_checkpoint / "generator", "--question-encoder", tiny_checkpoint)
    composed = run("checkpoint", "compose", "mine", *parts, "--prompt", "prompt.json", "--prior-scale", "2")
    assert (composed.code, composed.out) == (0, "")
    assert composed.err.startswith("wrote mine@")
    ask = ("ask", QUESTION, "--local", "--json", "--indexes", indexes_folder, "--checkpoint", tmp_path / "mine")
    own = run(*ask).json
    assert own["checkpoint"].startswith("mine@")
    assert sum(one["posterior"] for one in own["passages"]) == pytest.approx(1.0, abs=1e-5)
    assert run("checkpoint", "compose", "mine", *parts).code == 2


def test_what_composing_needs_is_named(run: Run, tiny_checkpoint: Path, tmp_path: Path) -> None:
    assert run("checkpoint", "compose", "mine").code == 2
    ended = run("checkpoint", "compose", "mine", "--generator", "model.gguf", "--question-encoder", tiny_checkpoint)
    assert (ended.code, "--generator: a GGUF file is run by llama-server" in ended.err) == (2, True)
    (tmp_path / "prompt.json").write_text("{}")
    parts = ("--generator", "x/y", "--question-encoder", tiny_checkpoint, "--prompt", "prompt.json")
    assert "its prompt: user: " in run("checkpoint", "compose", "mine", *parts).err
    assert not (tmp_path / "mine").exists()
