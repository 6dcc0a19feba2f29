"""Learning to retrieve: the question encoder learns to put the passages that hold an answer before all others.

The loss is -log of the share that right passages have of p(z | x), among the best of the whole library: what the
encoder or BM25 scores high although it holds no answer is a hard negative. DPR (Karpukhin et al. 2020, section 3.2)
samples such passages beforehand, because its passage vectors move; here they are fixed, so each step searches anew.
BM25 scores are part of the score, as in serving: the encoder learns what words miss (CLEAR, Gao et al. 2020). The same
loss over inner products alone keeps them good for a service without BM25.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook.entities import Passage, PriorWeights
from openbook.errors import SourceInvalid
from openbook_lab.training.data import Questions, pieces_of, titled_pieces
from openbook_lab.training.distillation import encode_questions
from openbook_lab.training.examples import occurrences
from openbook_lab.training.libraries import DEV, PARAGRAPHS, Draw, Library, library_questions
from openbook_lab.training.models import RagModels
from openbook_lab.training.optimizer import ParameterGroup, question_groups
from openbook_lab.training.recipe import WORD_EMBEDDINGS, RetrievalConfig
from openbook_lab.training.stage import Task, parts_of, random_of
from openbook_lab.training.worlds import InventedWorld, LibraryQuestion

# Rounds of drawing without a single answer before training gives up.
FRUITLESS_ROUNDS = 100
FIVE = 5


@dataclass(frozen=True, slots=True)
class RankedPassages:
    """Passages of one question, the right ones first."""

    vectors: Tensor  # (K, d)
    bm25: Tensor  # (K,)
    n_right: int
    # whether a right passage is among the best five
    found: bool


def retrieval_loss(doc_scores: Tensor, n_right: int) -> Tensor:
    """-log of the share of softmax(doc_scores) on the first `n_right` passages: (K,) -> ()."""
    return doc_scores.logsumexp(dim=0) - doc_scores[:n_right].logsumexp(dim=0)


def retrieval_questions(questions: Questions, worlds: Sequence[InventedWorld]) -> dict[str, list[LibraryQuestion]]:
    """Questions with answers to each library. One over a paragraph knows the pieces of it that hold an answer.

    Questions of the same words share their answers: none of their passages is a wrong one for another of them.
    """
    asked = [*questions.paragraphs, *questions.alone]
    answers: dict[str, dict[str, None]] = {}
    for question in asked:
        answers.setdefault(_words(question.text), {}).update(dict.fromkeys(question.answers))
    row = {piece: number for number, piece in enumerate(titled_pieces(questions.paragraphs))}
    over_paragraphs = []
    for question in (question for question in asked if question.answers):
        rows = tuple(
            row[question.title, piece]
            for piece in (pieces_of(question.context) if question.context else ())
            if any(occurrences(answer, piece) for answer in question.answers)
        )
        shared = tuple(answers[_words(question.text)])
        over_paragraphs.append(LibraryQuestion(question.text, shared, PARAGRAPHS, "paragraph", rows))
    return {**library_questions(questions, worlds), PARAGRAPHS: over_paragraphs}


def _words(question: str) -> str:
    return question.lower().rstrip("? ")


@dataclass
class RetrievalTask(Task):
    """Steps of questions drawn anew, each with the passages that it finds. Processes share `questions_per_step`.

    What a step draws follows from its number, so `place` stays empty. A question that finds no answer among its
    candidates, and knows none, teaches nothing. The library DEV is searched for the questions of `dev`.
    """

    name = "retrieval"
    judged_by = "dev_mrr"
    config: RetrievalConfig
    rag: RagModels
    libraries: Mapping[str, Library]
    draw: Draw
    # the encoder as it was
    before: DPRQuestionEncoder = field(init=False)

    def __post_init__(self) -> None:
        self.before = copy.deepcopy(self.rag.question_encoder).to(self.machine.device, self.machine.dtype).eval()
        self.before.requires_grad_(False)

    @property
    def models(self) -> Sequence[PreTrainedModel]:
        return (self.rag.question_encoder,)

    def groups(self) -> list[ParameterGroup]:
        config = self.config
        embeddings = WORD_EMBEDDINGS not in config.freeze
        return question_groups(self.rag.question_encoder, config.question_rate, embeddings=embeddings)

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        random_state = random_of(self.config.seed, self.name, step, self.machine.rank)
        share = max(1, self.config.questions_per_step // self.machine.count)
        for _ in range(FRUITLESS_ROUNDS):
            numbers = self._learn_from([self.draw(random_state) for _ in range(share)], gather)
            if numbers["learnt"]:
                return numbers
        raise SourceInvalid(
            source=self.name,
            reason=f"none of {FRUITLESS_ROUNDS * share} questions found a passage that holds one of its answers",
        )

    def _learn_from(self, drawn: Sequence[LibraryQuestion], gather: Callable[[], None]) -> Mapping[str, float]:
        config = self.config
        totals = dict.fromkeys(("nll", "dense_nll", "moved", "learnt", "found", "length"), 0.0)
        # neighbours in length share a part: little of it is padding
        in_order = sorted(drawn, key=lambda question: len(question.text))
        for part in parts_of(in_order, config.accumulate):
            vectors = self._vectors(part)  # (B, d)
            hybrid, dense = [], []
            for candidates, vector in zip(self._candidates(part, vectors.detach()), vectors, strict=True):
                totals["length"] += float(vector.detach().norm())
                if candidates is None:
                    continue
                # weighed once: both losses meet before the weight, and their gradients add up there
                inner = config.dense * (candidates.vectors @ vector)  # (K,)
                both = PriorWeights(1.0, config.bm25).score(inner, candidates.bm25)  # (K,)
                hybrid.append(retrieval_loss(both, candidates.n_right))
                dense.append(retrieval_loss(inner, candidates.n_right))
                totals["found"] += candidates.found
            if not hybrid:
                continue
            with torch.no_grad():
                before = self._vectors(part, self.before)  # (B, d)
            # per squared length, so that it does not depend on the scale of the vectors
            moved = ((vectors - before).square().sum(dim=-1) / before.square().sum(dim=-1)).sum()  # ()
            losses = {"nll": torch.stack(hybrid).sum(), "dense_nll": torch.stack(dense).sum(), "moved": moved}
            loss = losses["nll"] + losses["dense_nll"] + config.pull * moved  # ()
            torch.autograd.backward(loss / len(drawn))
            gather()
            totals["learnt"] += len(hybrid)
            for name, value in losses.items():
                totals[name] += float(value.detach())
        return {name: total / len(drawn) for name, total in totals.items()}

    @torch.no_grad()
    def _candidates(self, questions: Sequence[LibraryQuestion], vectors: Tensor) -> list[RankedPassages | None]:
        """The best passages of each question by both scores, and those that it knows. A passage that holds an answer
        counts as right where none is known, and else is left out: it may be right. None where none is right."""
        found: list[RankedPassages | None] = []
        inner = {
            name: vectors @ library.vectors.T  # (B, N)
            for name, library in self.libraries.items()
            if any(question.library == name for question in questions)
        }
        for number, question in enumerate(questions):
            library = self.libraries[question.library]
            of_words = library.bm25_scores(question.text)  # (N,)
            scores = self._prior.score(inner[question.library][number], of_words)  # (N,)
            best: list[int] = scores.topk(min(self.config.n_docs, len(scores))).indices.tolist()
            holds = [_holds(question, library.passages[row]) for row in best]
            right = question.rows or tuple(row for row, held in zip(best, holds, strict=True) if held)
            if not right:
                found.append(None)
                continue
            wrong = [row for row, held in zip(best, holds, strict=True) if not held and row not in right]
            rows = [*right, *wrong]
            is_found = bool({*right}.intersection(best[:FIVE]))
            found.append(RankedPassages(library.vectors[rows], of_words[rows], len(right), is_found))
        return found

    @property
    def _prior(self) -> PriorWeights:
        return PriorWeights(dense=self.config.dense, bm25=self.config.bm25)

    @torch.no_grad()
    def evaluate(self) -> Mapping[str, float]:
        """How far up the first passage with an answer stands, by both scores: the share of questions that have it
        first, those that have it among five, and the mean of 1 / its place, 0 behind `n_docs`."""
        library = self.libraries.get(DEV)
        if not self.dev or library is None:
            return {}
        places = []
        for part in parts_of(self.dev, -(-len(self.dev) // self.config.questions_per_step)):
            asked = [LibraryQuestion(question.text, question.answers, DEV) for question in part]
            for question, vector in zip(asked, self._vectors(asked), strict=True):
                of_words = library.bm25_scores(question.text)  # (N,)
                scores = self._prior.score(library.vectors @ vector, of_words)  # (N,)
                best = scores.topk(min(self.config.n_docs, len(scores))).indices.tolist()
                held = (place for place, row in enumerate(best, 1) if _holds(question, library.passages[row]))
                places.append(next(held, float("inf")))
        count = len(places)
        return {
            "questions": count,
            "dev_first": 100 * sum(place == 1 for place in places) / count,
            "dev_five": 100 * sum(place <= FIVE for place in places) / count,
            "dev_mrr": sum(1 / place for place in places) / count,
        }

    def _vectors(self, questions: Sequence[LibraryQuestion], encoder: DPRQuestionEncoder | None = None) -> Tensor:
        texts = [question.text for question in questions]
        return encode_questions(encoder or self.rag.question_encoder, self.rag.question_tokenizer, texts)  # (B, d)


def _holds(question: LibraryQuestion, passage: Passage) -> bool:
    return any(occurrences(answer, passage.text) for answer in question.answers)
