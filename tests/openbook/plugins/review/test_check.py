"""openbook check: what an edit does to guarded answers, asked of the shipped checkpoint over a real repository."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from openbook.plugins.review.guards import Guard, broken
from openbook.storage.feedback import FeedbackFile, FeedbackRecord
from openbook.storage.index_store import IndexStore
from openbook_client import Answer
from tests.fixtures.command_line import Run
from tests.places import ROOT

MINI = ROOT / "checkpoints" / "openbook-mini"
HOTELS = "# Hotels\n\nA hotel may cost up to {} euros a night. Book it through the travel desk.\n"
OFFICE = "# Office\n\nThe office in Lisbon opens at 8:30 in the morning and closes at 19:00.\n"
BACKUPS = "# Backups\n\nThe backups are kept for {} days. The restore is tested by Maria Silva.\n"
ASKED = ("How many euros may a hotel cost a night?", "When does the office in Lisbon open?", "Who tests the restore?")


def git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *named, *arguments], check=True, capture_output=True)


def write_guard(path: Path, *lines: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    """A folder in a repository of one commit, and an edit of it that is not committed: the hotel costs more."""
    folder = tmp_path / "repository" / "handbook"
    folder.mkdir(parents=True)
    for name, text in (("hotels", HOTELS.format(160)), ("office", OFFICE), ("backups", BACKUPS.format(30))):
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        git(folder.parent, *command)
    (folder / "hotels.md").write_text(HOTELS.format(220), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        *(("Caddy and  admin", True), ("`caddy` and `admin`", True), ("`caddy and admin`", False), ("`admin", True)),
        ("run serve now", True),
    ],
)
def test_marks_of_code_count_where_the_guard_has_some(text: str, stands: bool) -> None:
    answer = Answer.model_construct(answer="The `caddy` and `admin` run ``` serve ``` now", evidence=(), passages=())
    wanted, unwanted = Guard(question="?", must_contain=text), Guard(question="?", must_not_contain=text)

    assert (broken(wanted, answer), bool(broken(unwanted, answer))) == ([] if stands else [f"lacks {text!r}"], stands)


def test_an_edit_that_breaks_a_guarded_answer_fails_and_every_report_says_why(
    run: Run, handbook: Path, tmp_path: Path
) -> None:
    guard = write_guard(
        tmp_path / "guard.jsonl",
        {"question": ASKED[0], "must_contain": "160", "must_cite": "hotels.md"},
        {"question": ASKED[1], "must_contain": ["8:30"], "must_not_contain": "19:00"},
        {"question": ASKED[2], "must_contain": "John", "warn": True},
    )
    reports = {ending: tmp_path / f"report{ending}" for ending in (".md", ".json", ".xml")}
    written = [part for path in reports.values() for part in ("--report", path)]
    indexes = tmp_path / "indexes"
    arguments = ("check", handbook, "--questions", guard, "--against", "HEAD", "--checkpoint", MINI)
    ended = run(*arguments, "--indexes", indexes, *written)
    assert ended.code == 1, ended.err
    first, *_, summary = ended.out.splitlines()
    assert first == f"FAIL  {ASKED[0]}"
    assert "              A hotel may cost up to 160 euros a night. (hotels.md#0)\n" in ended.out
    assert "              A hotel may cost up to 220 euros a night. (hotels.md#0)\n" in ended.out
    assert "      broken: lacks '160'\n" in ended.out
    assert f"WARN  {ASKED[2]}" in ended.out
    assert "      broken: lacks 'John' (before the edit, too)\n" in ended.out
    assert ASKED[1] not in ended.out
    said = "3 questions: 2 same answer, 1 another answer; 1 as expected, 1 broken. Passages: 1 changed."
    assert summary.startswith(said)
    # nothing stays behind
    assert not IndexStore(indexes).versions()
    found = json.loads(reports[".json"].read_text())
    assert found["fails"]
    assert [one["change"] for one in found["verdicts"]] == ["changed", "same", "same"]
    assert "160" in found["verdicts"][0]["before"]["answer"]
    assert "220" in found["verdicts"][0]["after"]["answer"]
    assert "up to 220 euros" in found["verdicts"][0]["after"]["evidence"][0]
    assert found["verdicts"][0]["after"]["passages"] == ["hotels.md#0"]
    row = f"| FAIL<br>lacks '160' | {ASKED[0]} | \"{found['verdicts'][0]['before']['answer']}\"<br>"
    assert row in reports[".md"].read_text()
    suite = ElementTree.fromstring(reports[".xml"].read_text())
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


def test_what_is_answered_now_becomes_the_guard_of_the_next_edit(run: Run, handbook: Path, tmp_path: Path) -> None:
    asked = write_guard(tmp_path / "asked.jsonl", *({"question": one} for one in (*ASKED, "Who is the queen of Peru?")))
    built = run("index", "build", handbook, "--name", "handbook")
    assert built.code == 0, built.err
    guard = tmp_path / "guard.jsonl"
    arguments = ("check", handbook, "--checkpoint", MINI)
    same = run(*arguments, "--questions", asked, "--learn", guard)
    assert same.code == 0, same.err
    assert "no passage changed" in same.out
    learnt = [json.loads(line) for line in guard.read_text().splitlines()]
    assert "220" in learnt[0]["must_contain"][0]
    assert learnt[3] == {"question": "Who is the queen of Peru?", "must_refuse": True}
    # a first guard, of what a reader liked and of what the text asks by itself
    rated, first = tmp_path / "feedback.jsonl", tmp_path / "first.jsonl"
    (liked,) = learnt[1]["must_contain"]
    assert "8:30" in liked
    FeedbackFile(rated).append(
        FeedbackRecord("2026-01-01T00:00:00+00:00", "id", "up", None, ASKED[1], liked, "handbook", "c")
    )
    (handbook / "desk.md").write_text("# Travel\n\n## Who books the train?\n\nMaria Silva books the train.\n")
    grown = run(*arguments, "--learn", first, "--feedback", rated)
    assert grown.code == 0, grown.err
    learnt = [json.loads(line) for line in first.read_text().splitlines()]
    assert learnt[0] == {"question": ASKED[1], "must_contain": [liked]}
    assert {"question": "Who books the train?", "must_contain": ["Maria Silva"]} in learnt
    (handbook / "office.md").unlink()
    ended = run(*arguments, "--questions", guard)
    assert ended.code == 1
    assert f"FAIL  {ASKED[1]}" in ended.out
    assert f"FAIL  {ASKED[0]}" not in ended.out
    assert "      now:    no answer (it would be " in ended.out
    assert ended.out.splitlines()[-1].startswith("4 questions: ")


@pytest.mark.slow
def test_a_kill_in_the_middle_leaves_the_indexes_and_the_guard_as_they_were(
    run: Run, handbook: Path, tmp_path: Path
) -> None:
    indexes = tmp_path / "indexes"
    built = run("index", "build", handbook, "--name", "handbook", "--indexes", indexes)
    assert built.code == 0, built.err
    (handbook / "office.md").unlink()
    guard = write_guard(tmp_path / "guard.jsonl", *({"question": f"{ASKED[0]} {number}"} for number in range(500)))

    def files() -> dict[Path, tuple[int, bytes]]:
        found = [path for path in (*indexes.rglob("*"), guard) if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}

    before = files()
    # its temporary folder, too
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "openbook", "check", handbook, "--questions", guard, "--learn", guard]
    checking = subprocess.Popen(
        [*command, "--indexes", indexes, "--checkpoint", MINI], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert checking.stderr is not None
    assert any(line.startswith("ask: ") for line in checking.stderr)
    checking.kill()
    checking.communicate()
    assert checking.returncode == -signal.SIGKILL
    assert files() == before


def test_a_guard_that_is_wrong_is_refused_with_its_line_before_anything_is_built(
    run: Run, handbook: Path, tmp_path: Path
) -> None:
    for line, said in (
        ('{"question": "?", "must_contian": "x"}', "must_contian: Extra inputs are not permitted"),
        ('{"question": " "}', "question: String should have at least 1 character"),
        ('{"question": "?", "must_refuse": true, "must_contain": "x"}', "must_refuse goes without must_contain"),
        ("{", "Invalid JSON"),
    ):
        guard = tmp_path / "guard.jsonl"
        guard.write_text('{"question": "What?"}\n\n' + line + "\n")
        ended = run("check", handbook, "--questions", guard, "--against", "HEAD")
        assert ended.code == 1
        assert ended.err.startswith(f"error [source_invalid]: {guard}, line 3: "), ended.err
        assert said in ended.err
    lacking = run("check", handbook)
    assert (lacking.code, "--learn makes a first guard" in lacking.err) == (2, True)
    guard.write_text('{"question": "What?"}\n')
    unknown = run(
        "check", handbook, "--questions", guard, "--against", "--upload-pack=x", "--indexes", tmp_path / "none"
    )
    assert unknown.err.startswith("error [unknown_index]"), unknown.err
