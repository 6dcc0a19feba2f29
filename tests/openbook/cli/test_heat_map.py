"""The picture of an answer: what it says, in words that cannot break it, as SVG."""

import itertools
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from openbook.cli.heat_map import heat_map
from tests.fixtures.command_line import QUESTION, Run

SVG = "{http://www.w3.org/2000/svg}"


def answered(**changes: Any) -> dict[str, Any]:
    """The body of an answer of two tokens from two passages."""
    return {
        "answer": "Lima",
        "abstained": False,
        "log_prob": -0.25,
        "model": "token",
        "posterior_kind": "per_token",
        "passages": [
            {"rank": 1, "passage_id": "1", "title": "Peru", "prior": 0.75, "posterior": 0.4},
            {"rank": 2, "passage_id": "2", "title": "Lima", "prior": 0.25, "posterior": 0.6},
        ],
        "tokens": [{"text": " Li", "posterior": [0.1, 0.9]}, {"text": "ma", "posterior": [0.7, 0.3]}],
        "index": {"version": "wiki-2018", "generation": 0, "snapshot_date": "2018-12-20"},
        "checkpoint": "tiny@0123456789ab",
    } | changes


def words_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_it_has_the_prior_then_every_token_then_the_answer_over_the_passages() -> None:
    words = words_of(heat_map("what is the capital of peru", answered()))
    assert words[:3] == [
        "what is the capital of peru",
        "Lima   (log p = -0.250)",
        "RAG-Token: p(passage | question, this token, the tokens before)",
    ]
    columns = ["prior", "75%", "25%", "Li", "10%", "90%", "ma", "70%", "30%", "answer", "40%", "60%"]
    assert words[3:15] == columns
    assert words[15:] == ["[1] Peru", "[2] Lima", "wiki-2018 of 2018-12-20, tiny@0123456789ab"]


def test_words_that_would_break_the_picture_are_words_in_it() -> None:
    hostile = "</text><script>alert('x & \"y\"')</script>\x00\x1b[31m\ufffe\ud800"
    passages = [{"rank": 1, "passage_id": hostile, "title": hostile, "prior": 1.0, "posterior": 1.0}]
    tokens = [{"text": hostile, "posterior": [1.0]}]
    svg = heat_map(hostile, answered(answer=hostile, passages=passages, tokens=tokens))
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "rect", "text"}
    assert words_of(svg)[0].startswith("</text><script>alert('x & \"y\"')</script>\ufffd\ufffd[31m")


def test_the_boxes_lie_side_by_side_and_inside_the_picture() -> None:
    long = answered(
        answer="x" * 300,
        passages=[
            {"rank": k, "passage_id": str(k), "title": "\u4e2d" * 60, "prior": 0.02, "posterior": 0.02}
            for k in range(1, 51)
        ],
        tokens=[{"text": f" word{i}" * i, "posterior": [0.02] * 50} for i in range(1, 13)],
    )
    drawing = heat_map("y" * 300, long)
    root = ElementTree.fromstring(drawing)
    ground, *boxes = [
        tuple(float(box.get(name, "0")) for name in ("x", "y", "width", "height")) for box in root.iter(f"{SVG}rect")
    ]
    assert len(boxes) == 50 * 14
    for x, y, width, height in boxes:
        assert x > 0
        assert y > 0
        assert x + width < ground[2]
        assert y + height < ground[3]
    # no two lie on each other
    assert len({(x, y) for x, y, _, _ in boxes}) == len(boxes)
    edges = sorted({(x, x + width) for x, _, width, _ in boxes})
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(edges))


def test_ask_draws_its_answer(run: Run, service: str) -> None:
    ended = run(
        "ask", QUESTION, "--url", service, "--json", "--n-docs", 2, "--max-new-tokens", 3, "--heat-map", "a.svg"
    )
    assert ended.code == 0, ended.err
    answer = json.loads(ended.out)
    words = words_of(Path("a.svg").read_text(encoding="utf-8"))
    assert words[0] == QUESTION
    assert [f"[{one['rank']}] {one['title']}" for one in answer["passages"]] == words[-3:-1]


def test_what_cannot_be_drawn_is_refused_before_anything_is_asked(run: Run) -> None:
    ended = run("ask", QUESTION, "--heat-map", "a.png")
    assert (ended.code, "a.png does not end in .svg" in ended.err) == (2, True)
    compared = run("ask", QUESTION, "--compare", "a", "--compare", "b", "--heat-map", "a.svg")
    assert "draws one answer; leave --compare out" in compared.err
