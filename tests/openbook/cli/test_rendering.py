import io

import pytest
from rich.console import Console

from openbook.cli.consoles import output, printable
from openbook.cli.rendering import columns_that_fit, show_answer, show_comparison

ANSWER = {
    "answer": "Martín Vizcarra",
    "abstained": False,
    "understood_as": None,
    "retriever": "dense",
    "attribution": "",
    "audit": None,
    "log_prob": -0.42,
    "answers": [{"text": "Martín Vizcarra", "log_prob": -0.42}, {"text": "", "log_prob": -3.0}],
    "model": "token",
    "posterior_kind": "per_token",
    "no_answer": 0.125,
    "tokens": [
        {"text": "martin", "log_prob": -0.1, "posterior": [0.75, 0.25]},
        {"text": " vizcarra", "log_prob": -0.32, "posterior": [0.0, 1.0]},
    ],
    "passages": [
        {
            "rank": rank,
            "passage_id": f"peru-{rank}",
            "title": "President of Peru [office]",
            "text": text,
            **dict.fromkeys(("url", "section", "published")),
            "doc_score": 18.1,
            "prior": 0.5,
            "posterior": 0.5,
            "answer_spans": spans,
        }
        for rank, text, spans in (
            (1, "The President is Martín Vizcarra, since 2018.", [[17, 32]]),
            (2, "Martín Vizcarra: the President is Martín Vizcarra.", [[0, 15], [34, 49]]),
        )
    ],
    "evidence": [{"rank": 2, "passage_id": "peru-2", "text": "Martín Vizcarra: the\nPresident.", "share": 1.0}],
    "index": {"version": "wiki-2018", "generation": 1, "snapshot_date": "2018-12-20"},
    "checkpoint": "openbook-mini@0123456789ab",
    "seconds": {"queue": 0.0, "encode": 0.01, "retrieve": 0.001, "generate": 0.05, "total": 0.061},
}

PLAIN = """\
Martín Vizcarra   log p = -0.420

    Martín Vizcarra: the
    President.
    [2] President of Peru [office]
2. (an empty answer)   log p = -3.000

RAG-Token: p(passage | question, this token, the tokens before)
token       log p  [1]         [2]
martin     -0.100  ███▊   75%  █▎     25%
 vizcarra  -0.320          0%  █████ 100%

[1] President of Peru [office]   posterior 50%, prior 50%, doc_score 18.100, id peru-1
    The President is *Martín Vizcarra*, since 2018.

[2] President of Peru [office]   posterior 50%, prior 50%, doc_score 18.100, id peru-2
    *Martín Vizcarra*: the President is *Martín Vizcarra*.

wiki-2018 of 2018-12-20, generation 1, openbook-mini@0123456789ab: queue 0 ms, encode 10 ms, retrieve 1 ms, \
generate 50 ms, total 61 ms
"""


def test_an_answer_in_a_pipe_is_plain_text() -> None:
    written = io.StringIO()
    show_answer(ANSWER, Console(file=written, width=1000, highlight=False))
    assert "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n" == PLAIN


def test_no_line_of_a_pipe_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(ANSWER, output())
    assert capsys.readouterr().out == PLAIN
    output().print("what? ", end="")
    assert capsys.readouterr().out == "what? "


def test_a_terminal_gets_the_answer_in_colour_and_lines_no_wider_than_it() -> None:
    written = io.StringIO()
    show_answer(ANSWER, Console(file=written, width=60, force_terminal=True, color_system="standard", highlight=False))
    text = written.getvalue()
    assert "\x1b[1;32mMartín Vizcarra\x1b[0m, since" in text
    assert "*Martín" not in text


def test_a_narrow_table_keeps_the_passages_that_count_most_by_rank() -> None:
    posteriors = [[0.1, 0.5, 0.0, 0.4], [0.8, 0.1, 0.0, 0.1]]
    assert columns_that_fit(posteriors, room=1000) == [0, 1, 2, 3]
    assert columns_that_fit(posteriors, room=24) == [0, 1]
    assert columns_that_fit(posteriors, room=36) == [0, 1, 3]
    assert columns_that_fit(posteriors, room=0) == [0]


def test_what_a_terminal_would_obey_is_taken_out_and_lengths_stay() -> None:
    text = "a\x1b[31mb\nc\u202ed é"
    assert printable(text) == "a\ufffd[31mb c\ufffdd é"
    assert len(printable(text)) == len(text)


def test_the_lines_of_an_answer_stay(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer({**ANSWER, "answer": "sync-all --dry\nsync-all\x1b[31m"}, output())
    assert capsys.readouterr().out.startswith("sync-all --dry\nsync-all\ufffd[31m   log p = -0.420\n")


def test_what_a_reader_must_be_shown_stands_below_the_passages() -> None:
    console = Console(file=io.StringIO(), width=200)
    show_answer({**ANSWER, "attribution": "By [its] authors"}, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[-2] == "By [its] authors"
    assert lines[-3] == ""


def test_a_comparison_shows_it_for_the_version_whose_text_it_is() -> None:
    console = Console(file=io.StringIO(), width=200)
    answers = [{**ANSWER, "attribution": "By its authors"}, {**ANSWER, "attribution": ""}]
    groups = [{"answer": "Martín Vizcarra", "versions": ["wiki-2018"]}]
    show_comparison({"agree": True, "groups": groups, "answers": answers}, console)
    assert console.file.getvalue().count("By its authors") == 1  # type: ignore[attr-defined]


def test_a_passage_says_where_it_is_from_and_nothing_that_a_terminal_would_obey() -> None:
    console = Console(file=io.StringIO(), width=200)
    source = {"url": "https://a.example/\x1b[31m", "section": "One > [Two]", "published": "2018-12-20"}
    first, second = ANSWER["passages"]
    show_answer({**ANSWER, "passages": [{**first, **source}, second]}, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    [at] = [number for number, line in enumerate(lines) if "One > [Two]" in line]
    assert lines[at].strip() == "One > [Two]   2018-12-20   https://a.example/\ufffd[31m"
    assert lines[at - 1].startswith("[1] President of Peru")


def test_what_an_audit_found_unsupported_is_said_below_the_answer() -> None:
    written = io.StringIO()
    sentences = [{"text": "It is [so].", "supported": True}, {"text": "It [was].", "supported": False}]
    single = {"model": "single-prompt", "posterior_kind": "prior", "audit": {"sentences": sentences, "reason": None}}
    show_answer({**ANSWER, **single}, Console(file=written, width=1000, highlight=False))
    said = written.getvalue().splitlines()
    assert said[1] == "not from the passages: It [was]."
    assert "Single prompt: p(passage | question), since all passages were read at once" in said
