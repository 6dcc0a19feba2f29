from pathlib import Path

from tests.cli.conftest import Run


def test_training_without_a_question_file_is_wrong_use(run: Run) -> None:
    ended = run("train", "trained")
    assert ended.code == 2
    assert "--paragraphs" in ended.err


def test_a_question_file_that_is_not_there_ends_training_before_it_begins(run: Run, tmp_path: Path) -> None:
    ended = run("train", "trained", "--paragraphs", "squad.jsonl", "--work", "work")
    assert ended.code == 1
    assert ended.err == "error [source_invalid]: squad.jsonl: there is no such file\n"
    assert not (tmp_path / "trained").exists()


def test_the_help_names_the_recipes_own_numbers(run: Run) -> None:
    from service.offline.training.recipe import TrainingConfig

    recipe = TrainingConfig(Path("a"), Path("b"), ())
    told = " ".join(run("train", "--help").out.split())
    assert f"Steps of reading. Default: {recipe.reading.steps}; 0: left out." in told
    assert f"Steps of joint training. Default: {recipe.joint.steps}; 0: left out." in told
    assert f"in joint training. Default: {recipe.joint.n_docs}." in told
    assert f"Default: {recipe.reading.evaluate_every}, and {recipe.joint.evaluate_every} in joint" in told


def test_a_number_that_the_recipe_does_not_have_ends_training_before_it_begins(run: Run) -> None:
    ended = run("train", "trained", "--paragraphs", "squad.jsonl", "--set", "joint.speed=3")
    assert ended.code == 2
    assert ended.err.startswith("error [setting_invalid]: --set: joint has no number 'speed', but steps, ")
