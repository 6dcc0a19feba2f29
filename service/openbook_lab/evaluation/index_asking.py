"""Texts asked over an index as the paper's experiments do: by each model, over what each retriever finds, of each K."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from openbook.entities import Decoding, ModelKind
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.asking import ask
from openbook_lab.evaluation.reader import MAX_NEW_TOKENS, BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.retrieval import CLOSED_BOOK, Finding, Retrieval, retrieve
from openbook_lab.evaluation.tables import Cell, Facts, Rows


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """Which models answer, over what which retrievers find (`retrieve`). A closed book needs no index.

    `sweep` are further K to ask with, beside `n_docs` (Figure 3).
    """

    retrievers: Sequence[Finding] = ("dense",)
    models: Sequence[ModelKind] = ("token", "sequence")
    n_docs: int = 5
    num_beams: int = 1
    decoding: Decoding = "thorough"
    encoder_folder: Path | None = None
    sweep: Sequence[int] = ()

    @property
    def decodes(self) -> tuple[Decode, ...]:
        """One for each model, as the answer log names it."""
        return tuple(
            Decode(model, self.num_beams) if model == "token" else Decode(model, self.num_beams, self.decoding)
            for model in self.models
        )

    def decodes_of(self, retriever: Finding) -> tuple[Decode, ...]:
        """Without a passage nothing is marginalised: RAG-Token and RAG-Sequence are one model, p(y | x)."""
        return (Decode("token", self.num_beams),) if retriever == CLOSED_BOOK else self.decodes

    def docs_of(self, retriever: Finding) -> tuple[int, ...]:
        """Every K that is asked with, ascending."""
        return (0,) if retriever == CLOSED_BOOK else tuple(sorted({self.n_docs, *self.sweep}))

    def facts(self, checkpoint: Checkpoint, snapshot: IndexSnapshot | None) -> Facts:
        """For a report: the checkpoint and the index."""
        if snapshot is None:
            return {"checkpoint": checkpoint.name, "index": "none"}
        index: Facts = {"index": snapshot.info.version, "passages": len(snapshot), "K": self.n_docs}
        return {"checkpoint": checkpoint.name, **index}


@dataclass(frozen=True, slots=True)
class TextAnswers:
    """What one retriever found for every text, and the answers from the best K of it, by K and decoding."""

    retrieval: Retrieval
    answers: dict[int, dict[Decode, list[GivenAnswer]]]

    @property
    def retriever(self) -> Finding:
        return self.retrieval.retriever

    def of(self, n_docs: int) -> dict[Decode, list[GivenAnswer]]:
        """The answers from `n_docs` passages; a closed book has the same for every K."""
        return self.answers[0 if self.retriever == CLOSED_BOOK else n_docs]

    def describe(self, decode: Decode) -> str:
        """The decoding's name in a table; a closed book has no RAG model."""
        return str(decode).removeprefix("RAG-Token, ") if self.retriever == CLOSED_BOOK else str(decode)

    def rows(
        self, file: str, plan: PaperPlan, measure: Callable[[Sequence[GivenAnswer], int], Sequence[Cell]]
    ) -> tuple[Rows, Rows]:
        """The rows of the plan's K, and those of its sweep: what `measure` makes of the answers from K passages."""
        rows: Rows = []
        swept: Rows = []
        for decode, answers in self.of(plan.n_docs).items():
            name = self.describe(decode)
            rows.append((file, self.retriever, name, *measure(answers, plan.n_docs)))
            if self.retriever != CLOSED_BOOK:
                swept += [(file, self.retriever, k, name, *measure(self.answers[k][decode], k)) for k in plan.sweep]
        return rows, swept


def ask_each(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot | None,
    plan: PaperPlan,
    *,
    work: Path,
    progress: Progress,
    name: str,
    max_new_tokens: int | None = None,
) -> Iterator[TextAnswers]:
    """The texts asked over what each retriever finds; answers of another length are in another log.

    Raises SettingInvalid for a retriever without a `snapshot` to search.
    """
    reader = BatchReader(checkpoint, max_new_tokens=max_new_tokens or MAX_NEW_TOKENS)
    log = AnswerLog.of(work, checkpoint, "" if max_new_tokens is None else str(max_new_tokens))
    for retriever in plan.retrievers:
        retrieval = retrieve(checkpoint, texts, snapshot, retriever, plan.encoder_folder)
        every_k = plan.docs_of(retriever)
        # all K in one go: the time left is the time of the whole sweep
        questions = [
            OpenQuestion(text, found.passages[:k], found.doc_scores[:k])
            for k in every_k
            for text, found in zip(texts, retrieval.found, strict=True)
        ]
        given = ask(reader, questions, plan.decodes_of(retriever), log, progress=progress, stage=f"{name}: {retriever}")
        whole = {decode: [answer for answer in answers if answer is not None] for decode, answers in given.items()}
        yield TextAnswers(
            retrieval,
            {
                k: {decode: answers[at * len(texts) : (at + 1) * len(texts)] for decode, answers in whole.items()}
                for at, k in enumerate(every_k)
            },
        )
