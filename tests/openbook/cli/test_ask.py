import io
from pathlib import Path

import pytest

from tests.fixtures.command_line import QUESTION, Run

NOWHERE = "http://127.0.0.1:9"
Here = tuple[object, ...]


def test_it_asks_the_service_and_shows_tokens_and_passages(run: Run, service: str) -> None:
    # without quotation marks
    ended = run("ask", *QUESTION.split(), "--url", service, "--n-docs", 3, "--max-new-tokens", 4)
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    lines = ended.out.splitlines()
    assert "log p = -" in lines[0]
    assert ["[1]", "[2]", "[3]"] in [[word for word in line.split() if word.startswith("[")] for line in lines]
    assert sum("%" in line and "posterior" not in line for line in lines) in range(1, 5)
    assert sum("posterior" in line and "doc_score" in line for line in lines) == 3
    assert "    the " in ended.out
    assert "tiny-2016 of 2016-12-21, generation 0, tiny@" in lines[-1]
    assert "total" in lines[-1]


def test_options_reach_the_service_and_json_is_its_response(run: Run, service: str) -> None:
    answer = run(
        *("ask", QUESTION, "--url", service, "--json", "--model", "sequence", "--decoding", "fast", "--num-beams", 2),
        *("--n-docs", 4, "--max-new-tokens", 3, "--index", "tiny-2016", "--timeout-s", 20, "--num-answers", 2),
    ).json
    assert (answer["model"], answer["posterior_kind"]) == ("sequence", "running")
    assert (len(answer["passages"]), len(answer["answers"])) == (4, 2)
    assert len(answer["tokens"]) <= 3
    assert answer["answer"] == answer["answers"][0]["text"]
    assert answer["index"]["version"] == "tiny-2016"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--n-docs", 13, "n_docs: 13 passages were asked for"),
        ("--search", '{"nprobe": 3}', "search.nprobe: the index 'tiny-2016' of type flat has no such parameter"),
    ],
)
def test_what_the_service_refuses_keeps_its_own_code(
    run: Run, service: str, option: str, value: object, said: str
) -> None:
    ended = run("ask", QUESTION, "--url", service, option, value)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"error [invalid_request]: {said}")


def test_in_this_process_the_answer_is_the_services(run: Run, service: str, here: Here) -> None:
    there, local = (run("ask", QUESTION, *where, "--json").json for where in (("--url", service), here))
    assert local | {"seconds": None} == there | {"seconds": None}


def test_a_service_that_allows_fewer_tokens_than_usual_answers(
    run: Run, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_MAX_NEW_TOKENS", "3")
    assert len(run("ask", QUESTION, *here, "--json").json["tokens"]) <= 3


def test_in_this_process_a_version_may_be_named(run: Run, here: Here) -> None:
    assert run("ask", QUESTION, *here, "--json", "--index", "tiny-2018").json["index"]["version"] == "tiny-2018"


@pytest.mark.parametrize(("option", "value"), [("--n-docs", 51), ("--n-docs", 0), ("--num-answers", 17)])
def test_in_this_process_the_same_is_refused(option: str, value: int, run: Run, here: Here) -> None:
    ended = run("ask", QUESTION, *here, option, value)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error [invalid_request]: ")
    assert option.strip("-").replace("-", "_") in ended.err


def test_where_no_service_answers_it_asks_here_and_says_so(
    run: Run, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "9")
    ended = run("ask", QUESTION, *here[1:], "--json")
    assert ended.json["index"]["version"] == "tiny-2016"
    assert ended.err == f"No service at {NOWHERE}: answering in this process, as with --local.\n"


def test_where_no_service_answers_an_installed_checkpoint_is_asked(
    run: Run, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "9")
    ended = run("ask", QUESTION, "--checkpoint", "openbook-mini", "--indexes", indexes_folder)
    assert ended.err.startswith(f"No service at {NOWHERE}: answering in this process, as with --local.\n")
    # the version is not of its encoder
    assert "error [index_incompatible]" in ended.err


def test_a_service_that_was_named_is_not_replaced(run: Run, here: Here) -> None:
    ended = run("ask", QUESTION, "--url", NOWHERE, *here[1:])
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"error [server_unreachable]: No Openbook answers at {NOWHERE}: ")


def test_with_nothing_here_either_it_says_how_to_start_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "9")
    ended = run("ask", QUESTION)
    assert ended.code == 1
    assert "Start it with: openbook serve" in ended.err


def test_local_and_url_exclude_each_other(run: Run) -> None:
    assert run("ask", QUESTION, "--local", "--url", NOWHERE).code == 2


def test_a_doubtful_answer_is_withheld_and_said_to_be(run: Run, service: str) -> None:
    asked = ("ask", QUESTION, "--url", service, "--max-new-tokens", 3)
    plain = run(*asked, "--json").json
    ended = run(*asked, "--abstain", 0)
    assert ended.out.startswith("I do not know   p(no answer) = ")
    # the candidates may be wrong: --json has them
    assert plain["answers"][0]["text"] not in ended.out.partition("The closest passages:")[0]
    assert [line[:3] for line in ended.out.splitlines() if line.startswith("[")] == ["[1]", "[2]", "[3]"]
    assert run(*asked, "--abstain", "never", "--json").json["answer"] == plain["answer"]
    assert run(*asked, "--abstain", 1, "--json").json["answer"] == plain["answer"]
    assert run(*asked, "--abstain", "calibrated").err.startswith("error [not_calibrated]: ")
    assert run(*asked, "--abstain", "often").err.startswith("error [setting_invalid]: --abstain: takes a number")
    both = run(*asked, "--abstain", 0, "--compare", "tiny-2016", "--compare", "tiny-2018").out
    assert "All versions agree:\n  (no answer)   tiny-2016, tiny-2018" in both


def test_a_filter_says_which_passages_are_read(run: Run, service: str) -> None:
    asked = ("ask", QUESTION, "--url", service, "--json", "--filter")
    some = '{"field": "id", "operator": "in", "value": ["peru", "river"]}'
    assert {one["passage_id"] for one in run(*asked, some).json["passages"]} == {"peru", "river"}
    for chosen, said in (
        ('{"field": "id"', "error [setting_invalid]: --filter: is not JSON: "),
        ('{"field": "id"}', "error [setting_invalid]: --filter: filter.operator: is required"),
        ('{"field": "meta.day", "operator": "==", "value": 1}', "error [filter_field_unknown]: filter.field: "),
    ):
        assert run(*asked, chosen).err.startswith(said)


def test_a_conversation_goes_on_until_an_empty_line(
    run: Run, service: str, here: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = "And of Chile?\nand\t \n" + "x" * 2001 + "\nWho is the king?\n\nWho is never asked?\n"
    for where in (("--url", service), here):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        ended = run("ask", "Who is the President of Peru?", "--chat", "--max-new-tokens", 3, *where)
        assert ended.code == 0, ended.err
        understood = [line for line in ended.out.splitlines() if line.startswith("understood as: ")]
        assert understood == ["understood as: Who is the President of Chile?"]
        assert ended.out.count("log p = ") == 4
        assert "error [invalid_request]: " in ended.err
        assert "never" not in ended.out
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("ask", "--chat", "--url", service).out == ""
    assert run("ask", "--chat", "--json").err.startswith("error [setting_invalid]: --chat: shows one answer")
    assert run("ask", "--chat", "--url", NOWHERE).code == 1


def test_a_passage_is_left_out(run: Run, service: str) -> None:
    asked = ("ask", QUESTION, "--url", service, "--max-new-tokens", 3)
    first, *others = (one["passage_id"] for one in run(*asked, "--json").json["passages"])
    left = run(*asked, "--json", "--without", first, "--without", "nobody").json
    assert [one["passage_id"] for one in left["passages"]] == others
    several = run(*asked, "--without", first, "--compare", "tiny-2016", "--compare", "tiny-2018")
    assert several.err.startswith("error [setting_invalid]: --without: asks one version")
