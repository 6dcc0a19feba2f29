import json
from pathlib import Path

import pytest

from tests.fixtures.command_line import QUESTION, Run


def test_it_asks_the_service_and_shows_tokens_and_passages(run: Run, service: str) -> None:
    ended = run("ask", QUESTION, "--url", service, "--n-docs", 3, "--max-new-tokens", 4)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert "log p = -" in lines[0]
    assert [head for head in lines[3].split() if head.startswith("[")] == ["[1]", "[2]", "[3]"]
    assert sum("%" in line and "posterior" not in line for line in lines) in range(1, 5)
    assert sum("posterior" in line and "doc_score" in line for line in lines) == 3
    assert "tiny-2016 of 2016-12-21, generation 0, tiny@" in lines[-1]
    assert "total" in lines[-1]


def test_a_pipe_gets_no_colour_and_no_folded_line(run: Run, service: str) -> None:
    out = run("ask", QUESTION, "--url", service).out
    assert "\x1b" not in out
    assert "    the king is head of the old house and a member of the parliament .\n" in out or "    the " in out


def test_json_is_the_response_as_it_is(run: Run, service: str) -> None:
    answer = json.loads(run("ask", QUESTION, "--url", service, "--json", "--num-answers", 2).out)
    assert len(answer["answers"]) == 2
    assert answer["answer"] == answer["answers"][0]["text"]
    assert answer["index"]["version"] == "tiny-2016"


def test_options_reach_the_service(run: Run, service: str) -> None:
    answer = json.loads(
        run(
            *("ask", QUESTION, "--url", service, "--json", "--model", "sequence", "--decoding", "fast"),
            *("--num-beams", 2, "--n-docs", 4, "--max-new-tokens", 3, "--index", "tiny-2016", "--timeout-s", 20),
        ).out
    )
    assert answer["model"] == "sequence"
    assert answer["posterior_kind"] == "running"
    assert len(answer["passages"]) == 4
    assert len(answer["tokens"]) <= 3


def test_what_the_service_refuses_keeps_its_own_code(run: Run, service: str) -> None:
    ended = run("ask", QUESTION, "--url", service, "--n-docs", 13)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error [invalid_request]: n_docs: 13 passages were asked for")


def test_how_thoroughly_to_search_reaches_the_service(run: Run, service: str) -> None:
    options = {"--ef-search": "efSearch", "--nprobe": "nprobe", "--candidates": "candidates"}
    for option, name in options.items():
        ended = run("ask", QUESTION, "--url", service, option, 3)
        assert ended.code == 1
        assert ended.err.startswith(f"error [invalid_request]: search.{name}: means nothing to the index 'tiny-2016'")


def test_in_this_process_the_answer_is_the_services(
    run: Run, service: str, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    here = ("--local", "--checkpoint", tiny_checkpoint, "--indexes", indexes_folder)
    there = json.loads(run("ask", QUESTION, "--url", service, "--json").out)
    local = json.loads(run("ask", QUESTION, *here, "--json").out)
    assert {k: v for k, v in local.items() if k != "seconds"} == {k: v for k, v in there.items() if k != "seconds"}


def test_in_this_process_a_version_may_be_named(run: Run, tiny_checkpoint: Path, indexes_folder: Path) -> None:
    here = ("--local", "--checkpoint", tiny_checkpoint, "--indexes", indexes_folder)
    assert json.loads(run("ask", QUESTION, *here, "--json", "--index", "tiny-2018").out)["index"]["version"] == (
        "tiny-2018"
    )


@pytest.mark.parametrize(("option", "value"), [("--n-docs", 51), ("--n-docs", 0), ("--num-answers", 5)])
def test_in_this_process_the_same_is_refused(
    option: str, value: int, run: Run, tiny_checkpoint: Path, indexes_folder: Path
) -> None:
    ended = run("ask", QUESTION, "--local", "--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, option, value)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error [invalid_request]: ")
    assert option.strip("-").replace("-", "_") in ended.err


def test_where_no_service_answers_it_asks_here_and_says_so(
    run: Run, tiny_checkpoint: Path, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "9")
    ended = run("ask", QUESTION, "--checkpoint", tiny_checkpoint, "--indexes", indexes_folder, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["index"]["version"] == "tiny-2016"
    assert ended.err == "No service at http://127.0.0.1:9: answering in this process, as with --local.\n"


def test_a_service_that_was_named_is_not_replaced(run: Run, tiny_checkpoint: Path, indexes_folder: Path) -> None:
    here = ("--checkpoint", tiny_checkpoint, "--indexes", indexes_folder)
    ended = run("ask", QUESTION, "--url", "http://127.0.0.1:9", *here)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error [server_unreachable]: No Openbook answers at http://127.0.0.1:9: ")


def test_with_nothing_here_either_it_says_how_to_start_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "9")
    ended = run("ask", QUESTION)
    assert ended.code == 1
    assert "Start it with: openbook serve" in ended.err


def test_local_and_url_exclude_each_other(run: Run) -> None:
    assert run("ask", QUESTION, "--local", "--url", "http://127.0.0.1:9").code == 2


def test_an_open_version_that_is_not_live_can_be_named(run: Run, service: str) -> None:
    answer = json.loads(run("ask", QUESTION, "--url", service, "--json", "--index", "tiny-2018").out)
    assert answer["index"] == {"version": "tiny-2018", "generation": 0, "snapshot_date": "2018-12-20"}
