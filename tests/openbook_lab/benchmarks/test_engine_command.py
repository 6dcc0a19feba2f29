"""`openbook bench engine` and `openbook bench precision`, over a checkpoint so small that nothing takes time."""

import json
from pathlib import Path

import pytest

from tests.fixtures.command_line import Run
from tests.fixtures.evaluation import QUESTIONS, write_lines

SMALL = ("--n-docs", 2, "--length", 16, "--new-tokens", 3, "--num-beams", 2)


@pytest.mark.timeout(600)
def test_the_engine_is_measured_and_the_figures_are_written(run: Run, tiny_checkpoint: Path) -> None:
    ended = run(
        "bench", "engine", "--checkpoint", tiny_checkpoint, "--shapes", "mini", "--modes", "token greedy",
        "--contestants", "openbook float32", "--threads", 1, "--repeats", 1, *SMALL,
        "--folder", "work", "--json", "figures.json", "--markdown", "figures.md",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = json.loads(Path("figures.json").read_text())
    assert found["experiment"] == "bench engine"
    answers = found["tables"][0]["rows"]
    assert [(row["shape"], row["contestant"], row["answers"]) for row in answers] == [("mini", "openbook float32", 1)]
    assert all(f"**{table['title']}**" in Path("figures.md").read_text() for table in found["tables"])
    assert all(table["title"] in ended.out for table in found["tables"])
    assert list(Path("work").iterdir()) == [], "the weights are gone when they have been measured"


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--contestants", "openbook float32,abacus", "'abacus' is none of: openbook float32, "),
        ("--modes", "tok", "'tok' is none of: token greedy, token beams, sequence thorough"),
        ("--shapes", "", "'' is none of: mini, bart-large"),
        ("--threads", "1,0", "'1,0' is no list of numbers above 0"),
        ("--threads", "two", "'two' is no list of numbers above 0"),
    ],
)
def test_what_there_is_not_to_measure_is_named_beside_what_there_is(
    run: Run, tiny_checkpoint: Path, option: str, value: str, reason: str
) -> None:
    ended = run("bench", "engine", "--checkpoint", tiny_checkpoint, option, value)
    assert (ended.code, f"Invalid value for {option}: {reason}" in ended.err) == (2, True), ended.err


def test_precisions_are_held_against_the_first(run: Run, checkpoint_folder: Path, tiny_encoder: Path) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    ended = run(
        "bench", "precision", questions, "--all", "--checkpoint", checkpoint_folder, "--encoder", tiny_encoder,
        "--precisions", "float32,int8", "--n-docs", 2, "--num-beams", 2, "--work", "work", "--json", "figures.json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = json.loads(Path("figures.json").read_text())
    assert found["experiment"] == "bench precision"
    assert found["facts"]["K"] == 2
    rows = found["tables"][0]["rows"]
    assert [(row["decoding"], row["precision"]) for row in rows] == [
        (decoding, precision)
        for decoding in ("RAG-Token, greedy", "RAG-Token, 2 beams")
        for precision in ("float32", "int8")
    ]
    exact = [row for row in rows if row["precision"] == "float32"]
    assert all(row["% answered otherwise than float32"]["mean"] == 0 for row in exact)
    assert {row["questions"] for row in rows} == {sum(1 for one in QUESTIONS if one["answers"])}


def test_a_precision_that_there_is_not_is_refused(run: Run, tiny_checkpoint: Path) -> None:
    questions = write_lines(Path("questions.jsonl"), QUESTIONS)
    ended = run("bench", "precision", questions, "--all", "--checkpoint", tiny_checkpoint, "--precisions", "float8")
    assert (ended.code, "'float8' is none of: float32, bfloat16, int8" in ended.err) == (2, True), ended.err
