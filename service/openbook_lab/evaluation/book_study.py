"""What a checkpoint makes of a version's questions: their candidates, read once and kept."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openbook.entities import Passage, RetrievedPassages
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.generator import Generator
from openbook.rag.retriever import Bm25Retriever, DenseRetriever, QuestionEncoder, Search
from openbook.storage.durable import write_atomically
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import dpr_words, has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import digest_of

# The best of each search are a question's candidates.
CANDIDATES = 10
PASSAGES_A_SLICE = 1000
# Of an answer that a span reader cannot read in a passage: a fit needs a finite one.
LEAST_LOG_PROB = math.log(1e-6)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Passages in the order of their rows, each with both scores, log p(empty answer | x, z) and the share of the
    question's words that it holds."""

    rows: tuple[int, ...]
    dense: tuple[float, ...]
    bm25: tuple[float, ...]
    empty: tuple[float, ...]
    coverage: tuple[float, ...]

    def at(self, places: Sequence[int]) -> "Candidates":
        """Those in some places."""
        rows = tuple(self.rows[place] for place in places)
        scores = (self.dense, self.bm25, self.empty, self.coverage)
        return Candidates(rows, *(tuple(of_all[place] for place in places) for of_all in scores))


@dataclass(frozen=True, slots=True)
class StudiedQuestion:
    """The candidates of a question with log p(y_i | x, z, y_<i) of its answer, and which of them hold an answer.

    Of a span reader the answer is one step: log p(y | x, z), `LEAST_LOG_PROB` at least.

    `others` are its candidates once every article that holds an answer is taken away.
    """

    found: Candidates
    token_log_probs: tuple[tuple[float, ...], ...]
    held: tuple[bool, ...]
    others: Candidates

    @property
    def not_held(self) -> Candidates:
        """The candidates that hold no answer."""
        return self.found.at([place for place, held in enumerate(self.held) if not held])

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "StudiedQuestion":
        """What `asdict` made, after JSON."""
        found, others = (
            Candidates(**{name: tuple(values) for name, values in kept[part].items()}) for part in ("found", "others")
        )
        return cls(found, tuple(map(tuple, kept["token_log_probs"])), tuple(kept["held"]), others)


@dataclass(frozen=True, slots=True)
class TakenAway:
    """The articles of which a passage holds an answer; of passages without a title, their rows."""

    titles: frozenset[str] = frozenset()
    rows: frozenset[int] = frozenset()

    def holds(self, row: int, passage: Passage) -> bool:
        return passage.title in self.titles or row in self.rows


class BookStudy:
    """Reads the candidates of one version's questions, and keeps what was read in `work`."""

    def __init__(self, checkpoint: Checkpoint, snapshot: IndexSnapshot, work: Path, model: str) -> None:
        """`model` names the weights and their precision. Raises RetrieverUnavailable for a version without BM25."""
        self._encoder = QuestionEncoder(checkpoint)
        self._device = checkpoint.device
        self._dense = DenseRetriever()
        self._bm25 = Bm25Retriever()
        self._snapshot = snapshot
        self._bm25_index = snapshot.bm25()
        info = snapshot.info
        files = (f"{name} {file.sha256}" for name, file in sorted(info.files.items()))
        said = Candidates.__annotations__  # what an older run kept may lack one
        self._folder = work / f"candidates-{digest_of(model, info.version, str(CANDIDATES), *said, *files)}"

    def study(self, generator: Generator, questions: Sequence[Question], progress: Progress) -> list[StudiedQuestion]:
        """Each question's candidates, in order; only what `work` lacks is read."""
        paths = [self._folder / f"{digest_of(one.text, *one.answers)}.json" for one in questions]
        missing = [number for number, path in enumerate(paths) if not path.is_file()]
        version = self._snapshot.info.version
        if missing:
            self._folder.mkdir(parents=True, exist_ok=True)
            taken = articles_that_answer(self._snapshot, [questions[number] for number in missing], progress)
            done = len(questions) - len(missing)
            progress.update(done, len(questions), f"{version}: candidates")
            for number, away in zip(missing, taken, strict=True):
                studied = self._read(generator, questions[number], away)
                write_atomically(paths[number], json.dumps(asdict(studied)))
                done += 1
                progress.update(done, len(questions), f"{version}: candidates")
        return [StudiedQuestion.from_json(json.loads(path.read_text(encoding="utf-8"))) for path in paths]

    @torch.inference_mode()
    def _read(self, generator: Generator, question: Question, away: TakenAway) -> StudiedQuestion:
        vector = self._encoder.encode([question.text])  # (1, d)

        def by_vector(k: int) -> RetrievedPassages:
            return self._dense.search(Search([question.text], vector, self._snapshot, k))[0]

        def by_words(k: int) -> RetrievedPassages:
            return self._bm25.search(Search([question.text], vector, self._snapshot, k))[0]

        total = len(self._snapshot)
        found, others = (
            sorted({*_best(by_vector, total, without), *_best(by_words, total, without)})
            for without in (TakenAway(), away)
        )
        of_all = self._bm25_index.scores(question.text)  # (N,)
        rows = [*found, *(row for row in others if row not in found)]  # R
        passages = self._snapshot.passages(rows)
        dense = self._snapshot.vectors(rows).astype(np.float64) @ vector[0].astype(np.float64)  # (R,)
        bm25 = of_all[rows].astype(np.float64)  # (R,)
        coverage = self._bm25_index.coverage(question.text, rows)  # (R,)
        texts = [passage.text for passage in passages[: len(found)]]
        start = generator.start(generator.encode([question.text], [passages]))
        certain = torch.zeros(len(rows), 1, dtype=torch.float64, device=self._device)  # (R, 1), K = 1
        empty = generator.empty_log_prob(start, certain).tolist()  # R
        target = generator.target_ids([answer_to_read(question.answers, texts)])
        scored = generator.score(start, certain, target, "sequence")[: len(found)]
        log_probs = [one.token_log_probs for (one,) in scored]  # (C, T)
        if generator.why_not is not None:
            log_probs = [(max(one.log_prob, LEAST_LOG_PROB),) for (one,) in scored]  # (C, 1)
        place = {row: number for number, row in enumerate(rows)}

        def candidates(chosen: Sequence[int]) -> Candidates:
            places = [place[row] for row in chosen]
            return Candidates(
                tuple(chosen),
                tuple(dense[places].tolist()),
                tuple(bm25[places].tolist()),
                tuple(empty[one] for one in places),
                tuple(coverage[places].tolist()),
            )

        return StudiedQuestion(
            candidates(found),
            tuple(log_probs),
            tuple(has_answer(text, question.answers) for text in texts),
            candidates(others),
        )


def answer_to_read(answers: Sequence[str], texts: Sequence[str]) -> str:
    """The first answer that stands in one of the texts, else the first; of a question without one the empty one."""
    read = (answer for answer in answers if any(has_answer(text, [answer]) for text in texts))
    return next(read, answers[0] if answers else "")


def articles_that_answer(snapshot: IndexSnapshot, questions: Sequence[Question], progress: Progress) -> list[TakenAway]:
    """For each question, the articles of which a passage holds an answer, as `has_answer` says."""
    # one pass over the version for all questions; spaces at both ends keep "niger" out of "nigeria"
    sought = [
        [f" {' '.join(words)} " for answer in question.answers if (words := dpr_words(answer))]
        for question in questions
    ]
    titles: list[set[str]] = [set() for _ in questions]
    untitled: list[set[int]] = [set() for _ in questions]
    for row, passage in _all_passages(snapshot, progress):
        text = f" {' '.join(dpr_words(passage.text))} "
        for number, answers in enumerate(sought):
            if any(answer in text for answer in answers):
                if passage.title:
                    titles[number].add(passage.title)
                else:
                    untitled[number].add(row)
    return [TakenAway(frozenset(one), frozenset(other)) for one, other in zip(titles, untitled, strict=True)]


def _all_passages(snapshot: IndexSnapshot, progress: Progress) -> Iterator[tuple[int, Passage]]:
    """Every row with its passage."""
    total = len(snapshot)
    for first in range(0, total, PASSAGES_A_SLICE):
        rows = range(first, min(first + PASSAGES_A_SLICE, total))
        yield from zip(rows, snapshot.passages(rows), strict=True)
        progress.update(rows.stop, total, f"{snapshot.info.version}: articles")


def _best(search: Callable[[int], RetrievedPassages], total: int, away: TakenAway) -> list[int]:
    """The first `CANDIDATES` rows of a search that are not taken away, or as many as there are."""
    k = min(CANDIDATES, total)
    while True:
        found = search(k)
        rows = [row for row, one in zip(found.rows, found.passages, strict=True) if not away.holds(row, one)]
        if len(rows) >= CANDIDATES or k == total:
            return rows[:CANDIDATES]
        k = min(4 * k, total)
