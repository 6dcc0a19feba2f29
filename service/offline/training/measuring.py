"""What a checkpoint can do on articles that it was not trained on: reading alone, and with passages to be found."""

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from service.entities import AnswerOptions, Passage
from service.offline.encyclopedia import Question as WorldQuestion
from service.offline.encyclopedia import load_world, questions
from service.offline.qa_metrics import exact_match, f1
from service.offline.training.counterfactual import occurrences
from service.offline.training.examples import Question, read_questions
from service.offline.training.loop import Report
from service.offline.training.mixture import titled_pieces
from service.rag import decoding, marginal
from service.rag.checkpoint import Checkpoint, load_checkpoint
from service.rag.engine import RagEngine
from service.rag.generator import Generator
from service.rag.passage_encoder import PassageEncoder
from service.rag.provenance import as_written
from service.rag.retriever import QuestionEncoder
from service.storage.index_store import IndexStore

MAX_NEW_TOKENS = 20
GREEDY = 1


@dataclass(frozen=True, slots=True)
class Score:
    """Of `questions` questions, in percent."""

    name: str
    exact_match: float
    f1: float
    questions: int

    def __str__(self) -> str:
        return f"{self.name}: EM {self.exact_match:.1f}, F1 {self.f1:.1f} ({self.questions} questions)"


def measure(
    checkpoint: Path,
    paragraphs: Sequence[Path],
    *,
    held_out: Sequence[str],
    sample: int = 160,
    n_docs: int = 5,
    seed: int = 0,
    report: Report,
) -> list[Score]:
    """Ask a sample of the questions to the held-out articles, and report each score as it is there.

    Once with the paragraph given whole; then with `n_docs` passages retrieved from all paragraphs, those of the other
    articles too, decoded greedily: RAG-Token, RAG-Sequence (thorough), and the first passage alone.
    """
    known = [question for path in paragraphs for question in read_questions(path)]
    dev = [question for question in known if question.title in held_out]
    dev = random.Random(seed).sample(dev, min(sample, len(dev)))
    loaded = load_checkpoint(checkpoint)
    scores = [_score("gold paragraph", dev, _read_gold(loaded, dev))]
    report(str(scores[0]))

    library = [Passage(str(row), title, text) for row, (title, text) in enumerate(titled_pieces(known))]
    vectors = torch.from_numpy(PassageEncoder.load().encode(library))  # (N, d)
    asked = torch.from_numpy(QuestionEncoder(loaded).encode([question.text for question in dev]))  # (Q, d)
    found = (asked @ vectors.T).topk(n_docs)  # (Q, K)
    passages = [[library[row] for row in rows] for rows in found.indices.tolist()]
    for k in (1, n_docs):
        hits = sum(_holds(question, of[:k]) for question, of in zip(dev, passages, strict=True))
        report(f"an answer in the top {k} of {len(library)} passages: {100 * hits / len(dev):.1f}")
    for name, k, decode in (
        (f"RAG-Token, K={n_docs}", n_docs, _token),
        (f"RAG-Sequence thorough, K={n_docs}", n_docs, _sequence),
        ("first passage alone", 1, _token),
    ):
        generator = Generator(loaded)
        answers = [
            _answer(generator, question.text, of[:k], scores_of[:k], decode)
            for question, of, scores_of in zip(dev, passages, found.values, strict=True)
        ]
        scores.append(_score(name, dev, answers))
        report(str(scores[-1]))
    return scores


def measure_facts(
    checkpoint: Path, indexes: Path, version: str, *, year: int, per_kind: int = 6, seed: int = 2, report: Report
) -> list[Score]:
    """Ask the version of this year for facts of its encyclopedia, all but who holds an office: a sample of each kind.

    The last score is the mean over the kinds. RAG-Token, greedy, five passages.
    """
    engine = RagEngine(load_checkpoint(checkpoint))
    by_kind: dict[str, list[WorldQuestion]] = {}
    for question in questions(load_world(year)):
        if question.kind != "office":
            by_kind.setdefault(question.kind, []).append(question)
    random_state = random.Random(seed)
    scores = []
    with closing(IndexStore(indexes).open(version)) as snapshot:
        for kind, of_kind in by_kind.items():
            asked = random_state.sample(of_kind, min(per_kind, len(of_kind)))
            given = [
                engine.answer(q.question, snapshot, AnswerOptions(num_beams=GREEDY)).answers[0].text for q in asked
            ]
            scores.append(_score(kind, [Question(q.question, q.answers) for q in asked], given))
            report(str(scores[-1]))
    kinds = max(1, len(scores))
    mean = [sum(getattr(score, field) for score in scores) / kinds for field in ("exact_match", "f1")]
    scores.append(Score("all kinds", mean[0], mean[1], sum(score.questions for score in scores)))
    report(str(scores[-1]))
    return scores


Decode = Callable[[Generator, Sequence[str], Sequence[Sequence[Passage]], torch.Tensor], tuple[int, ...]]


def _token(
    generator: Generator, asked: Sequence[str], passages: Sequence[Sequence[Passage]], prior: torch.Tensor
) -> tuple[int, ...]:
    encoded = generator.encode(asked, passages)
    answers = decoding.rag_token(
        generator, encoded, prior, num_beams=GREEDY, max_new_tokens=MAX_NEW_TOKENS, between_steps=_nothing
    )
    return answers[0][0].token_ids


def _sequence(
    generator: Generator, asked: Sequence[str], passages: Sequence[Sequence[Passage]], prior: torch.Tensor
) -> tuple[int, ...]:
    encoded = generator.encode(asked, passages)
    answers = decoding.rag_sequence(
        generator,
        encoded,
        prior,
        num_beams=GREEDY,
        max_new_tokens=MAX_NEW_TOKENS,
        thorough=True,
        between_steps=_nothing,
    )
    return answers[0][0].token_ids


def _answer(
    generator: Generator, question: str, passages: Sequence[Passage], doc_scores: torch.Tensor, decode: Decode
) -> str:
    prior = marginal.doc_log_prior(doc_scores)[None]  # (1, K)
    text = generator.text(decode(generator, [question], [passages], prior))
    return as_written(text, [passage.text for passage in passages])


def _read_gold(checkpoint: Checkpoint, questions: Sequence[Question]) -> list[str]:
    generator = Generator(checkpoint)
    return [
        _answer(generator, question.text, [Passage("", question.title, question.context)], torch.zeros(1), _token)
        for question in questions
    ]


def _score(name: str, questions: Sequence[Question], answers: Sequence[str]) -> Score:
    matched = sum(exact_match(answer, question.answers) for answer, question in zip(answers, questions, strict=True))
    overlap = sum(f1(answer, question.answers) for answer, question in zip(answers, questions, strict=True))
    count = max(1, len(questions))
    return Score(name, 100 * matched / count, 100 * overlap / count, len(questions))


def _holds(question: Question, passages: Sequence[Passage]) -> bool:
    return any(bool(occurrences(answer, passage.text)) for answer in question.answers for passage in passages)


def _nothing() -> None:
    return None
