from pathlib import Path

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


def test_a_checkpoint_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    ended = run("checkpoint", "export", "whole", "--checkpoint", "checkpoints/openbook-mini")
    assert ended.code == 1
    assert ended.err.startswith("error [checkpoint_invalid]: There is no checkpoint checkpoints/openbook-mini")
    assert not (tmp_path / "whole").exists()


def test_the_mean_of_two_checkpoints_answers(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path, tmp_path: Path
) -> None:
    mean = run("checkpoint", "average", "mean", tiny_checkpoint, tiny_checkpoint, "--name", "middle")
    assert (mean.code, mean.out) == (0, "")
    assert mean.err == "wrote the mean of 2 checkpoints to mean\n"
    asked = run("ask", QUESTION, "--local", "--json", "--indexes", indexes_folder, "--checkpoint", tmp_path / "mean")
    assert asked.json["checkpoint"].startswith("middle@")
    assert run("checkpoint", "average", "other", tiny_checkpoint).code == 2
