"""What a comparison looks like: in a pipe, on a wide terminal and on a narrow one."""

import io
from typing import Any

from rich.console import Console

from openbook.cli.rendering import show_comparison
from tests.fixtures.command_line import QUESTION, Run
from tests.openbook.cli.test_rendering import ANSWER


def of_version(version: str, answer: str, text: str, span: list[int]) -> dict[str, Any]:
    passage = {**ANSWER["passages"][0], "text": text, "answer_spans": [span], "posterior": 0.75}  # type: ignore[index]
    other = {**passage, "rank": 2, "posterior": 0.25, "text": "Peru is in South America.", "answer_spans": []}
    least = {**other, "rank": 3, "posterior": 0.0, "text": "A river."}
    return {
        **ANSWER,
        "answer": answer,
        "index": {"version": version, "generation": 1, "snapshot_date": version.removeprefix("wiki-") + "-12-20"},
        "passages": [passage, other, least],
    }


PARTING = {
    "question": "Who is the President of Peru?",
    "agree": False,
    "groups": [
        {"answer": "Pedro Pablo Kuczynski", "versions": ["wiki-2016"]},
        {"answer": "Martín Vizcarra", "versions": ["wiki-2018"]},
    ],
    "answers": [
        of_version("wiki-2016", "Pedro Pablo Kuczynski", "Its president is Pedro Pablo Kuczynski.", [17, 38]),
        of_version("wiki-2018", "Martín Vizcarra", "Its president is Martín Vizcarra.", [17, 32]),
    ],
}

PLAIN = """\
The versions part: 2 different answers.
  Pedro Pablo Kuczynski   wiki-2016
  Martín Vizcarra   wiki-2018

wiki-2016 of 2016-12-20
    Pedro Pablo Kuczynski   log p = -0.420

    [1] President of Peru [office]   posterior 75%
    Its president is *Pedro Pablo Kuczynski*.

    [2] President of Peru [office]   posterior 25%
    Peru is in South America.

wiki-2018 of 2018-12-20
    Martín Vizcarra   log p = -0.420

    [1] President of Peru [office]   posterior 75%
    Its president is *Martín Vizcarra*.

    [2] President of Peru [office]   posterior 25%
    Peru is in South America.

"""


def shown(comparison: dict[str, Any], width: int, *, terminal: bool) -> str:
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=terminal, color_system=None, highlight=False)
    show_comparison(comparison, console)
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())


def test_in_a_pipe_versions_come_one_after_the_other_unfolded() -> None:
    assert shown(PARTING, 1000, terminal=False) == PLAIN


def test_a_wide_terminal_has_them_side_by_side() -> None:
    lines = shown(PARTING, 100, terminal=True).splitlines()
    assert any("wiki-2016 of 2016-12-20" in line and "wiki-2018 of 2018-12-20" in line for line in lines)
    assert any("Kuczynski." in line and "Vizcarra." in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_a_narrow_terminal_has_them_one_after_the_other() -> None:
    lines = shown(PARTING, 50, terminal=True).splitlines()
    assert not any("wiki-2016" in line and "wiki-2018" in line for line in lines)
    assert max(map(len, lines)) <= 50


def test_versions_that_agree_are_named_beside_their_one_answer() -> None:
    agreeing = {**PARTING, "agree": True, "groups": [{"answer": "", "versions": ["wiki-2016", "wiki-2018"]}]}
    assert shown(agreeing, 1000, terminal=False).splitlines()[:2] == [
        "All versions agree:",
        "  (an empty answer)   wiki-2016, wiki-2018",
    ]


def test_the_service_is_asked_for_the_versions_given(run: Run, service: str) -> None:
    both = ("--compare", "tiny-2018", "--compare", "tiny-2016")
    ended = run("ask", QUESTION, "--url", service, *both)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.index("tiny-2018 of 2018-12-20") < ended.out.index("tiny-2016 of 2016-12-21")
    compared = run("ask", QUESTION, "--url", service, *both, "--n-docs", 3, "--json").json
    assert [answer["index"]["version"] for answer in compared["answers"]] == ["tiny-2018", "tiny-2016"]
    assert [len(answer["passages"]) for answer in compared["answers"]] == [3, 3]
    assert sum(len(group["versions"]) for group in compared["groups"]) == 2


def test_in_this_process_the_comparison_is_the_services(run: Run, service: str, here: tuple[object, ...]) -> None:
    both = ("--compare", "tiny-2016", "--compare", "tiny-2018", "--json")
    there, local = (run("ask", QUESTION, *where, *both).json for where in (("--url", service), here))
    for answer in [*there["answers"], *local["answers"]]:
        del answer["seconds"]
    assert local == there


def test_one_version_is_not_compared_and_none_is_pinned_beside(run: Run) -> None:
    one = run("ask", QUESTION, "--compare", "tiny-2016", "--compare", "tiny-2016")
    assert (one.code, one.err) == (
        2,
        "error [setting_invalid]: --compare: takes two versions or more, each given with --compare\n",
    )
    pinned = run("ask", QUESTION, "--compare", "tiny-2016", "--compare", "tiny-2018", "--index", "tiny-2016")
    assert (pinned.code, pinned.err.split(": ")[1]) == (2, "--index")
