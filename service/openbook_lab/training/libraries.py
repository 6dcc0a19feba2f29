"""What joint training searches, asks and finds: a library of the questions' paragraphs, and one of each world."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from openbook.entities import Passage
from openbook_lab.training.data import Questions, titled_pieces
from openbook_lab.training.examples import NO_ANSWER, asked, occurrences
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion, by_kind, draw_question

PARAGRAPHS = "paragraphs"

Draw = Callable[[random.Random], LibraryQuestion]


@dataclass(frozen=True, slots=True)
class Library:
    """Passages that are searched together, with their fixed vectors."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, d)

    def to(self, device: torch.device) -> "Library":
        """The same with its vectors on another device."""
        return Library(self.passages, self.vectors.to(device))


@dataclass(frozen=True, slots=True)
class Found:
    """A question with the passages that it found."""

    question: LibraryQuestion
    rows: list[int]  # K


def make_libraries(
    questions: Questions, worlds: Sequence[InventedWorld], *, encoder: TextEncoder
) -> dict[str, Library]:
    """A library of the paragraphs' pieces and all other passages; and one of the pieces and a world's, for each world.

    Worlds are searched apart: they contradict each other. A passage in several libraries is encoded once.
    """
    pieces = [Passage(f"paragraph-{n}", *piece) for n, piece in enumerate(titled_pieces(questions.paragraphs))]
    members = {PARAGRAPHS: [*pieces, *questions.passages]}
    members |= {world.name: [*pieces, *world.passages] for world in worlds}
    contents = dict.fromkeys((p.title, p.text) for passages in members.values() for p in passages)
    vectors = torch.from_numpy(encoder.encode_texts([f"{title} {text}".strip() for title, text in contents]))  # (N, d)
    row = {content: number for number, content in enumerate(contents)}
    return {
        name: Library(passages, vectors[[row[p.title, p.text] for p in passages]]) for name, passages in members.items()
    }


def make_dev_library(paragraphs: Library, questions: Questions, *, encoder: TextEncoder) -> Library:
    """The library of the dev questions: the paragraphs' with the held-out articles' pieces behind it."""
    pieces = [Passage(f"held-out-{n}", *piece) for n, piece in enumerate(titled_pieces(questions.held_out))]
    vectors = torch.from_numpy(encoder.encode_texts([f"{p.title} {p.text}".strip() for p in pieces]))  # (N, d)
    return Library([*paragraphs.passages, *pieces], torch.cat([paragraphs.vectors, vectors]))


def library_questions(
    questions: Questions, worlds: Sequence[InventedWorld], *, unfound: bool = False
) -> dict[str, list[LibraryQuestion]]:
    """The questions to each library. Questions to a world know their passages, which stand behind the paragraphs'.

    Answers to prompts and claims are written, not found; with `unfound`, so are all others over the paragraphs.
    """
    asked_of_paragraphs = [LibraryQuestion(q.text, (), PARAGRAPHS, "unanswerable") for q in questions.unanswerable]
    for kind, of_kind, written in (
        ("paragraph", questions.paragraphs, unfound),
        ("alone", questions.alone, unfound),
        ("text", questions.prompts, True),
        ("claim", questions.claims, True),
    ):
        asked_of_paragraphs += [
            LibraryQuestion(q.text, q.answers, PARAGRAPHS, kind, written=written) for q in of_kind if q.answers
        ]
    before = len(titled_pieces(questions.paragraphs))
    return {PARAGRAPHS: asked_of_paragraphs} | {
        world.name: [replace(q, rows=tuple(before + row for row in q.rows)) for q in world.questions]
        for world in worlds
    }


def draw_from(
    questions: Mapping[str, Sequence[LibraryQuestion]],
    *,
    world_share: float,
    office_share: float,
    paragraph_kinds: Mapping[str, float] | None = None,
) -> Draw:
    """Draw a question of an invented world with probability `world_share`, else one over the paragraphs.

    Of a world's, `office_share` ask who holds an office; the other kinds of fact come as often as each other. Of the
    others, each kind comes as often as its weight in `paragraph_kinds` says; without weights, every question does. Of
    several texts for one prompt, each comes as often as another.
    """
    worlds = {name: by_kind(of_world) for name, of_world in questions.items() if name != PARAGRAPHS and of_world}
    over_paragraphs = by_kind(questions[PARAGRAPHS])
    weights = {
        kind: len(of_kind) if paragraph_kinds is None else paragraph_kinds.get(kind, 0.0)
        for kind, of_kind in over_paragraphs.items()
    }

    def draw(random_state: random.Random) -> LibraryQuestion:
        if worlds and random_state.random() < world_share:
            kinds = worlds[random_state.choice(list(worlds))]
            question = draw_question(kinds, random_state, office_share=office_share)
        else:
            (kind,) = random_state.choices(list(weights), list(weights.values()))
            question = random_state.choice(over_paragraphs[kind])
        if question.kind == "text":
            return replace(question, answers=(random_state.choice(question.answers),))
        return question if question.kind == "claim" else replace(question, text=asked(question.text, random_state))

    return draw


def retrieve(
    questions: Sequence[LibraryQuestion], vectors: Tensor, libraries: Mapping[str, Library], n_docs: int
) -> list[Found]:
    """The passages with the largest inner products, best first; `vectors` are the questions', (B, d).

    A known passage that the question missed takes the last place, so that training also learns what retrieval cannot
    do yet.
    """
    found = []
    for question, vector in zip(questions, vectors, strict=True):
        scores = libraries[question.library].vectors @ vector  # (N,)
        rows = scores.topk(n_docs).indices.tolist()
        if question.rows and not set(question.rows) & set(rows):
            known = torch.tensor(question.rows)  # (R,)
            rows[-1] = int(known[scores[known.to(scores.device)].argmax().cpu()])
        found.append(Found(question, rows))
    return found


def found_answer(found: Found, libraries: Mapping[str, Library]) -> str | None:
    """The target: the first answer that stands in a found passage.

    The empty answer where the library has none; None where no answer was found, so that there is nothing to learn.
    """
    answers = found.question.answers
    if not answers:
        return NO_ANSWER
    texts = [libraries[found.question.library].passages[row].text for row in found.rows]
    there = (answer for answer in answers if any(occurrences(answer, text) for text in texts))
    return next(there, answers[0] if found.question.written else None)
