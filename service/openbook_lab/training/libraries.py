"""What stage 2 searches: one library of the questions' own paragraphs, and one of each invented world."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from openbook.entities import Passage
from openbook_lab.training.examples import Question, asked
from openbook_lab.training.joint import Draw
from openbook_lab.training.mixture import titled_pieces
from openbook_lab.training.retrieval import Library, LibraryQuestion
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.world_examples import InventedWorld

PARAGRAPHS = "paragraphs"


def make_libraries(
    paragraphs: Sequence[Question],
    worlds: Sequence[InventedWorld],
    *,
    encoder: TextEncoder,
    more_passages: Sequence[Passage] = (),
) -> dict[str, Library]:
    """The paragraphs in pieces with `more_passages` behind them, and with each invented world those pieces again
    beside its own passages.

    Worlds are searched apart: they contradict each other. A passage that several hold is encoded once.
    """
    pieces = [
        Passage(f"paragraph-{number}", title, text) for number, (title, text) in enumerate(titled_pieces(paragraphs))
    ]
    members = {PARAGRAPHS: [*pieces, *more_passages]} | {world.name: [*pieces, *world.passages] for world in worlds}
    contents = dict.fromkeys((p.title, p.text) for passages in members.values() for p in passages)
    vectors = torch.from_numpy(encoder.encode_texts([f"{title} {text}".strip() for title, text in contents]))  # (N, d)
    row = {content: number for number, content in enumerate(contents)}
    return {
        name: Library(passages, vectors[[row[p.title, p.text] for p in passages]]) for name, passages in members.items()
    }


def dev_library(paragraphs: Library, held_out: Sequence[Question], *, encoder: TextEncoder) -> Library:
    """What held-out questions are asked of: the paragraphs' library with the held-out articles' pieces behind it."""
    pieces = [Passage(f"held-out-{n}", title, text) for n, (title, text) in enumerate(titled_pieces(held_out))]
    vectors = torch.from_numpy(encoder.encode_texts([f"{p.title} {p.text}".strip() for p in pieces]))  # (N, d)
    return Library([*paragraphs.passages, *pieces], torch.cat([paragraphs.vectors, vectors]))


def library_questions(
    paragraphs: Sequence[Question],
    worlds: Sequence[InventedWorld],
    *,
    unanswerable: Sequence[Question] = (),
    alone: Sequence[Question] = (),
    texts: Sequence[Question] = (),
    claims: Sequence[Question] = (),
    unfound: bool = False,
) -> dict[str, list[LibraryQuestion]]:
    """The questions to each library; those to a world know their passages, which stand behind the paragraphs'.

    All but `paragraphs` are asked of the paragraphs under kinds of their own; the answers to `texts` and `claims` are
    written, not found, and with `unfound` so are those to questions.
    """
    pieces = len(titled_pieces(paragraphs))
    questions = {
        PARAGRAPHS: [
            *(LibraryQuestion(q.text, (), PARAGRAPHS, "unanswerable") for q in unanswerable),
            *(
                LibraryQuestion(q.text, q.answers, PARAGRAPHS, kind, written=written)
                for kind, of_kind, written in (
                    ("paragraph", paragraphs, unfound),
                    ("alone", alone, unfound),
                    ("text", texts, True),
                    ("claim", claims, True),
                )
                for q in of_kind
                if q.answers
            ),
        ],
    }
    for world in worlds:
        questions[world.name] = [
            LibraryQuestion(q.text, q.answers, world.name, q.kind, tuple(pieces + row for row in q.rows))
            for q in world.questions
        ]
    return questions


def draw_from(
    questions: Mapping[str, Sequence[LibraryQuestion]],
    *,
    world_share: float,
    office_share: float,
    paragraph_kinds: Mapping[str, float] | None = None,
) -> Draw:
    """Draw a question of an invented world with probability `world_share`, else one over the paragraphs.

    Of the former, `office_share` ask who holds an office; the other kinds of fact come as often as each other. Of the
    latter, each kind comes as often as its weight in `paragraph_kinds` says; without weights, every question does. Of
    several texts that were written for one prompt, each comes as often as another.
    """
    worlds = {name: _by_kind(of_world) for name, of_world in questions.items() if name != PARAGRAPHS and of_world}
    over_paragraphs = _by_kind(questions[PARAGRAPHS])
    weights = {
        kind: len(of_kind) if paragraph_kinds is None else paragraph_kinds.get(kind, 0.0)
        for kind, of_kind in over_paragraphs.items()
    }

    def draw(random_state: random.Random) -> LibraryQuestion:
        if worlds and random_state.random() < world_share:
            kinds = worlds[random_state.choice(list(worlds))]
            wanted = "office" if "office" in kinds and random_state.random() < office_share else None
            question = random_state.choice(kinds[wanted or random_state.choice(list(kinds))])
        else:
            (kind,) = random_state.choices(list(weights), list(weights.values()))
            question = random_state.choice(over_paragraphs[kind])
        if question.kind == "text":
            return replace(question, answers=(random_state.choice(question.answers),))
        return question if question.kind == "claim" else replace(question, text=asked(question.text, random_state))

    return draw


def _by_kind(questions: Sequence[LibraryQuestion]) -> dict[str, list[LibraryQuestion]]:
    kinds: dict[str, list[LibraryQuestion]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds
