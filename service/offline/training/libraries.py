"""What stage 2 searches: one library of the questions' own paragraphs, and one of each invented world."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from service.entities import Passage
from service.offline.training.examples import Question, asked
from service.offline.training.joint import Draw, Library, LibraryQuestion
from service.offline.training.mixture import titled_pieces
from service.offline.training.world_examples import InventedWorld
from service.rag.passage_encoder import PassageEncoder

PARAGRAPHS = "paragraphs"


def make_libraries(
    paragraphs: Sequence[Question], worlds: Sequence[InventedWorld], *, encoder: PassageEncoder
) -> dict[str, Library]:
    """The paragraphs in pieces, and with each invented world those pieces again beside its own passages.

    Worlds are searched apart: they contradict each other. A passage that several hold is encoded once.
    """
    pieces = [
        Passage(f"paragraph-{number}", title, text) for number, (title, text) in enumerate(titled_pieces(paragraphs))
    ]
    members = {PARAGRAPHS: pieces} | {world.name: [*pieces, *world.passages] for world in worlds}
    contents = dict.fromkeys((p.title, p.text) for passages in members.values() for p in passages)
    different = [Passage(str(number), title, text) for number, (title, text) in enumerate(contents)]
    vectors = torch.from_numpy(encoder.encode(different))  # (N, d)
    row = {content: number for number, content in enumerate(contents)}
    return {
        name: Library(passages, vectors[[row[p.title, p.text] for p in passages]]) for name, passages in members.items()
    }


def library_questions(
    paragraphs: Sequence[Question], worlds: Sequence[InventedWorld]
) -> dict[str, list[LibraryQuestion]]:
    """The questions to each library; those to a world know their passages, which stand behind the paragraphs'."""
    pieces = len(titled_pieces(paragraphs))
    questions = {
        PARAGRAPHS: [LibraryQuestion(q.text, q.answers, PARAGRAPHS) for q in paragraphs if q.answers],
    }
    for world in worlds:
        questions[world.name] = [
            LibraryQuestion(q.text, q.answers, world.name, q.kind, tuple(pieces + row for row in q.rows))
            for q in world.questions
        ]
    return questions


def draw_from(questions: Mapping[str, Sequence[LibraryQuestion]], *, world_share: float, office_share: float) -> Draw:
    """Draw a question of an invented world with probability `world_share`, else one over the paragraphs.

    Of the former, `office_share` ask who holds an office; the other kinds of fact come as often as each other.
    """
    worlds = {name: _by_kind(of_world) for name, of_world in questions.items() if name != PARAGRAPHS and of_world}

    def draw(random_state: random.Random) -> LibraryQuestion:
        if worlds and random_state.random() < world_share:
            kinds = worlds[random_state.choice(list(worlds))]
            wanted = "office" if "office" in kinds and random_state.random() < office_share else None
            question = random_state.choice(kinds[wanted or random_state.choice(list(kinds))])
        else:
            question = random_state.choice(questions[PARAGRAPHS])
        return replace(question, text=asked(question.text, random_state))

    return draw


def _by_kind(questions: Sequence[LibraryQuestion]) -> dict[str, list[LibraryQuestion]]:
    kinds: dict[str, list[LibraryQuestion]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds
