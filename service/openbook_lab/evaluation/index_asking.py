"""Texts asked over an index as the paper's experiments do: by each model, over what each retriever finds, of each K."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from openbook.entities import Decoding, ModelKind, RetrievedPassages
from openbook.errors import SettingInvalid
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.asking import Setting, ask
from openbook_lab.evaluation.contestants import Contestant, retrieve_bm25, retrieve_frozen, retrieve_learned
from openbook_lab.evaluation.open_domain import describe
from openbook_lab.evaluation.reader import BatchReader, Decode, OpenQuestion
from openbook_lab.evaluation.reading import log_path

Finding = Literal["dense", "frozen", "bm25", "closed book"]
CLOSED_BOOK: Finding = "closed book"


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """How texts are asked: by each of these models over what each of these retrievers finds.

    `frozen` is the passage encoder's own vectors of the questions; `encoder_folder` None is the packaged one. "closed
    book" finds nothing: the generator reads the question alone, and no index is needed. `sweep` are further K to ask
    with, beside `n_docs` (Figure 3).
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
        """What the answer log knows them by."""
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


@dataclass(frozen=True, slots=True)
class Asked:
    """What one retriever found for every text, and what was answered from the best K of it, by K and decoding."""

    retriever: Finding
    found: Contestant
    answers: dict[int, dict[Decode, list[GivenAnswer]]]

    def of(self, n_docs: int) -> dict[Decode, list[GivenAnswer]]:
        """The answers from `n_docs` passages; those of a closed book whatever it is."""
        return self.answers[0 if self.retriever == CLOSED_BOOK else n_docs]

    def describe(self, decode: Decode) -> str:
        """As people say it."""
        said = describe(decode)
        return said.removeprefix("RAG-Token, ") if self.retriever == CLOSED_BOOK else said


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
) -> list[Asked]:
    """The texts asked over what each retriever finds; answers of another length are another log.

    Raises SettingInvalid for a retriever without a `snapshot` to search.
    """
    reader = (
        BatchReader(checkpoint) if max_new_tokens is None else BatchReader(checkpoint, max_new_tokens=max_new_tokens)
    )
    path = log_path(work, checkpoint)
    log = AnswerLog(path if max_new_tokens is None else path.with_name(f"{path.stem}-{max_new_tokens}.jsonl"))
    asked = []
    for retriever in plan.retrievers:
        found = find(checkpoint, texts, snapshot, retriever, plan.encoder_folder)
        every_k, decodes = plan.docs_of(retriever), plan.decodes_of(retriever)

        def of(number: int, found: Contestant = found, every_k: Sequence[int] = every_k) -> OpenQuestion:
            of_k, text = divmod(number, len(texts))
            one, n_docs = found.found[text], every_k[of_k]
            return OpenQuestion(texts[text], one.passages[:n_docs], one.doc_scores[:n_docs])

        # all K in one go, so that the time left is that of the whole sweep
        given = ask(
            reader,
            Setting(of, decodes),
            len(every_k) * len(texts),
            log,
            progress=progress,
            stage=f"{name}: {retriever}",
        )
        whole = {decode: [answer for answer in answers if answer is not None] for decode, answers in given.items()}
        answers = {
            n_docs: {
                decode: of_all[number * len(texts) : (number + 1) * len(texts)] for decode, of_all in whole.items()
            }
            for number, n_docs in enumerate(every_k)
        }
        asked.append(Asked(retriever, found, answers))
    return asked


def find(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot | None,
    retriever: Finding,
    encoder_folder: Path | None = None,
) -> Contestant:
    """The best 50 passages of each text, or all where there are fewer; of a closed book none."""
    if retriever == CLOSED_BOOK:
        nothing = RetrievedPassages((), (), ())
        return Contestant(
            f"{checkpoint.name}, {retriever}",
            checkpoint,
            np.empty((len(texts), 0), dtype=np.float32),  # (Q, 0)
            (nothing,) * len(texts),
        )
    if snapshot is None:
        raise SettingInvalid(setting="retriever", reason=f"{retriever} needs an index to search")
    questions = [Question(text, ()) for text in texts]
    learned = retrieve_learned(checkpoint.name, checkpoint, questions, snapshot)
    if retriever == "frozen":
        return retrieve_frozen(learned, questions, snapshot, encoder_folder)
    return retrieve_bm25(learned, questions, snapshot) if retriever == "bm25" else learned
