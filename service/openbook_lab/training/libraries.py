"""What joint training searches, asks and finds: a library of the questions' paragraphs, and one of each world."""

import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from openbook.entities import Passage, PriorWeights
from openbook.indexing.bm25_build import write_bm25
from openbook.storage.bm25_index import Bm25Index
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import Questions, titled_pieces
from openbook_lab.training.examples import NO_ANSWER, asked, occurrences
from openbook_lab.training.machine import CPU
from openbook_lab.training.vectors import TextEncoder
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion, by_kind, draw_question

PARAGRAPHS = "paragraphs"
DEV = "dev"
# the paper's prior: inner products alone
DENSE = PriorWeights(dense=1.0, bm25=0.0)

Draw = Callable[[random.Random], LibraryQuestion]


@dataclass(frozen=True, slots=True)
class Library:
    """Passages that are searched together, with their fixed vectors, and with BM25 for a hybrid prior."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, d)
    bm25: Bm25Index | None = None

    def bm25_scores(self, question: str) -> Tensor:
        """The BM25 score of every passage: (N,); zeros where the library has no BM25."""
        if self.bm25 is None:
            return self.vectors.new_zeros(len(self.passages))
        return torch.from_numpy(self.bm25.scores(question)).to(self.vectors.device)


@dataclass(frozen=True, slots=True)
class FoundPassages:
    """A question with the passages that it found, their vectors and their BM25 scores."""

    question: LibraryQuestion
    passages: Sequence[Passage]  # K
    vectors: Tensor  # (K, d)
    bm25: Tensor  # (K,)

    def doc_scores(self, vector: Tensor, prior: PriorWeights) -> Tensor:
        """What the retriever scores these passages with; `vector` (d,) is the question's: (K,)."""
        return prior.score(self.vectors @ vector, self.bm25)

    def silent(self) -> list[bool]:
        """Which of the K passages hold no answer, so that the generator should say nothing of them.

        None where a text is written: it need not stand in any passage.
        """
        question = self.question
        if question.written:
            return [False] * len(self.passages)
        return [not any(occurrences(answer, one.text) for answer in question.answers) for one in self.passages]

    def target(self) -> str | None:
        """The first answer that stands in one of the passages.

        The empty answer where the question has none; None where no answer was found, so that there is nothing to learn.
        """
        answers = self.question.answers
        if not answers:
            return NO_ANSWER
        there = (answer for answer in answers if any(occurrences(answer, passage.text) for passage in self.passages))
        return next(there, answers[0] if self.question.written else None)


def make_libraries(
    questions: Questions,
    worlds: Sequence[InventedWorld],
    *,
    encoder: TextEncoder,
    device: torch.device = CPU,
    bm25: bool = False,
) -> dict[str, Library]:
    """The libraries by their names, with `bm25` for a hybrid prior. Worlds are searched apart, because they contradict
    each other.

    PARAGRAPHS      the paragraphs' pieces and all other passages
    a world's name  the paragraphs' pieces and the world's passages
    DEV             as PARAGRAPHS, with the pieces of the held-out paragraphs behind
    """
    pieces = _pieces(questions.paragraphs, "paragraph")
    members = {PARAGRAPHS: [*pieces, *questions.passages]}
    members |= {world.name: [*pieces, *world.passages] for world in worlds}
    # a passage in several libraries is encoded once
    contents = dict.fromkeys((p.heading, p.text) for passages in members.values() for p in passages)
    vectors = _vectors(contents, encoder).to(device)  # (N, d)
    row = {content: number for number, content in enumerate(contents)}
    libraries = {
        name: Library(passages, vectors[[row[p.heading, p.text] for p in passages]])
        for name, passages in members.items()
    }
    paragraphs, held_out = libraries[PARAGRAPHS], _pieces(questions.held_out, "held-out")
    more = _vectors([(p.heading, p.text) for p in held_out], encoder).to(device)  # (H, d)
    libraries[DEV] = Library([*paragraphs.passages, *held_out], torch.cat([paragraphs.vectors, more]))
    if not bm25:
        return libraries
    return {name: replace(library, bm25=index_words(library.passages, name)) for name, library in libraries.items()}


def index_words(passages: Sequence[Passage], name: str) -> Bm25Index:
    """BM25 of these passages, for the library of this name."""
    with tempfile.TemporaryDirectory() as folder:
        info = write_bm25(Path(folder), passages, len(passages))
        # the mapping keeps the files
        return Bm25Index.open(Path(folder), info, n_passages=len(passages), version=name)


def _pieces(questions: Sequence[Question], name: str) -> list[Passage]:
    return [Passage(f"{name}-{n}", *piece) for n, piece in enumerate(titled_pieces(questions))]


def _vectors(contents: Iterable[tuple[str, str]], encoder: TextEncoder) -> Tensor:
    return torch.from_numpy(encoder.encode_texts([f"{heading} {text}".strip() for heading, text in contents]))  # (N, d)


def library_questions(
    questions: Questions, worlds: Sequence[InventedWorld], *, unfound: bool = False
) -> dict[str, list[LibraryQuestion]]:
    """The questions to each library. A world's questions know their passages, which stand behind the paragraphs'.

    Answers to prompts and claims are written, not found; with `unfound`, all others over the paragraphs are too.
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

    Of a world's questions, `office_share` ask who holds an office; the other kinds are equally likely.
    `paragraph_kinds` weighs the kinds of the questions over the paragraphs; without it, these questions are equally
    likely. Several texts for one prompt are equally likely too.
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
    questions: Sequence[LibraryQuestion],
    vectors: Tensor,
    libraries: Mapping[str, Library],
    n_docs: int,
    prior: PriorWeights = DENSE,
) -> list[FoundPassages]:
    """The passages with the largest doc_scores, best first; `vectors` are the questions', (B, d).

    A known passage that the question missed takes the last place, so that training also learns what retrieval cannot
    do yet.
    """
    found = []
    for question, vector in zip(questions, vectors, strict=True):
        library = libraries[question.library]
        of_words = library.bm25_scores(question.text)  # (N,)
        scores = prior.score(library.vectors @ vector, of_words)  # (N,)
        rows: list[int] = scores.topk(n_docs).indices.tolist()
        if question.rows and not set(question.rows) & set(rows):
            rows[-1] = max(question.rows, key=scores.__getitem__)
        passages = [library.passages[row] for row in rows]
        found.append(FoundPassages(question, passages, library.vectors[rows], of_words[rows]))
    return found
