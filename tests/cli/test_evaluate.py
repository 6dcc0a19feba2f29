import json
from pathlib import Path

import pytest

from service.offline.evaluation import leader_questions
from tests.cli.conftest import TOKEN, Run

# the way of asking that fewest offices have
STYLE = "function"
FAST = ("--style", STYLE, "--n-docs", 1)


def test_leaders_asks_each_index_about_each_year(run: Run, tiny_checkpoint: Path, indexes_folder: Path) -> None:
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder)
    ended = run("eval", "leaders", *here, *FAST, "--index", "tiny-2018", "--json")
    assert ended.code == 0, ended.err
    cells = json.loads(ended.out)
    assert [(cell["index"], cell["year"]) for cell in cells] == [("tiny-2018", 2016), ("tiny-2018", 2018)]
    assert {cell["asked"] for cell in cells} == {len(leader_questions([STYLE]))}


def test_leaders_leaves_a_service_on_the_index_that_it_had(
    run: Run, service: str, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", TOKEN)
    ended = run("eval", "leaders", "--url", service, *FAST, "--index", "tiny-2018")
    assert ended.code == 0, ended.err
    assert "index holder of 2016 holder of 2018" in " ".join(ended.out.split())
    assert "\n tiny-2018" in ended.out or "\ntiny-2018" in ended.out
    assert (indexes_folder / "CURRENT").read_text() == "tiny-2016\n"


def test_leaders_refuses_a_way_of_asking_that_there_is_none_of(run: Run) -> None:
    ended = run("eval", "leaders", "--style", "shouted")
    assert ended.code == 1
    assert ended.err.startswith("error [invalid_request]: style: 'shouted' is none of ")
