"""The paper's experiments over an index: questions (Table 1), texts (2, 4 and 5), and what retrieval is worth (6)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from openbook.errors import InvalidRequest, SettingInvalid
from openbook.indexing.index_builder import Progress
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import QuestionEncoder
from openbook.settings import Settings
from openbook.storage.opening import store_of
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.verification import check_compatible
from openbook_lab.datasets.generation_files import read_prompts
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.question_files import read_qa
from openbook_lab.evaluation.answer_log import AnswerLog, GivenAnswer
from openbook_lab.evaluation.generation_metrics import bleu_1, distinct_trigrams
from openbook_lab.evaluation.marks import ANSWER_METRICS, Marks, mark_answers, mark_texts
from openbook_lab.evaluation.options import CLOSED_BOOK, Finding, Options, load_checkpoints
from openbook_lab.evaluation.reader import MAX_NEW_TOKENS, BatchReader, Decode, ask
from openbook_lab.evaluation.reports import Cell, Facts, Report, Rows, Table, run_facts, with_rows
from openbook_lab.evaluation.retrieval import RetrievalFigures, retrieve
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.sweep_plot import SWEEP_TITLE

RECALL_AT = (1, 5, 10, 20, 50)


@contextmanager
def open_index(settings: Settings, n_docs: int, *asking: Checkpoint) -> Iterator[IndexSnapshot]:
    """The version that the settings name, or the live one.

    Raises IndexIncompatible where its vectors are not those that a checkpoint `asking` searches, InvalidRequest.
    """
    store = store_of(settings)
    with closing(store.open(settings.index or store.default_version())) as snapshot:
        for checkpoint in asking:
            dimension = QuestionEncoder(checkpoint).dimension
            check_compatible(snapshot.info, checkpoint.facts.encoder_fingerprint, dimension)
        if n_docs > len(snapshot):
            raise InvalidRequest(
                "too_many_docs", field="n_docs", n_docs=n_docs, version=snapshot.info.version, n_passages=len(snapshot)
            )
        yield snapshot


def decodes_of(options: Options, retriever: Finding = "dense") -> tuple[Decode, ...]:
    """One for each model. A closed book is one model, p(y | x): without a passage nothing is marginalised."""
    if retriever == CLOSED_BOOK:
        return (Decode("token", options.num_beams),)
    return tuple(
        Decode(model, options.num_beams, "thorough" if model == "token" else options.decoding)
        for model in options.models
    )


@dataclass(frozen=True, slots=True)
class TextAnswers:
    """What one retriever found for every text, and the answers by K and decoding. A closed book has K = 0 alone."""

    retrieval: RetrievalFigures
    answers: dict[int, dict[Decode, list[GivenAnswer]]]

    def of(self, n_docs: int) -> dict[Decode, list[GivenAnswer]]:
        """The answers from `n_docs` passages, or from none for a closed book."""
        return self.answers[0 if self.retrieval.retriever == CLOSED_BOOK else n_docs]

    def describe(self, decode: Decode) -> str:
        """The decoding's name in a table; a closed book has no RAG model."""
        return str(decode).removeprefix("RAG-Token, ") if self.retrieval.retriever == CLOSED_BOOK else str(decode)

    def rows(
        self, file: str, options: Options, measure: Callable[[Sequence[GivenAnswer], int], Sequence[Cell]]
    ) -> tuple[Rows, Rows]:
        """The rows of `n_docs`, and the rows of the sweep. `measure` makes cells of the answers from K passages."""
        retriever = self.retrieval.retriever
        k, sweep = (0, ()) if retriever == CLOSED_BOOK else (options.n_docs, options.sweep)
        rows: Rows = []
        swept: Rows = []
        for decode, answers in self.answers[k].items():
            name = self.describe(decode)
            rows.append((file, retriever, name, *measure(answers, k)))
            swept += [(file, retriever, at, name, *measure(self.answers[at][decode], at)) for at in sweep]
        return rows, swept


@dataclass(frozen=True, slots=True)
class PaperAsking:
    """Asks texts over an index as the options say. A closed book needs no `snapshot`."""

    options: Options
    snapshot: IndexSnapshot | None
    progress: Progress
    started: float = field(default_factory=time.perf_counter)

    def ask(
        self,
        checkpoint: Checkpoint,
        retrievers: Sequence[Finding],
        name: str,
        texts: Sequence[str],
        max_new_tokens: int | None = None,
    ) -> Iterator[TextAnswers]:
        """The texts asked over what each retriever finds. Answers are kept, in a log for each length."""
        options = self.options
        reader = BatchReader(checkpoint, max_new_tokens=max_new_tokens or MAX_NEW_TOKENS)
        log = AnswerLog.of(options.work, checkpoint, "" if max_new_tokens is None else str(max_new_tokens))
        for retriever in retrievers:
            retrieval = retrieve(checkpoint, texts, self.snapshot, retriever, options.encoder)
            every_k = (0,) if retriever == CLOSED_BOOK else tuple(sorted({options.n_docs, *options.sweep}))
            # all K in one go: the time left is the time of the whole sweep
            questions = [question for k in every_k for question in retrieval.best(texts, k)]
            stage = f"{name}: {retriever}"
            given = ask(reader, questions, decodes_of(options, retriever), log, progress=self.progress, stage=stage)
            yield TextAnswers(
                retrieval,
                {
                    k: {decode: answers[at * len(texts) : (at + 1) * len(texts)] for decode, answers in given.items()}
                    for at, k in enumerate(every_k)
                },
            )

    def facts(self, checkpoint: Checkpoint, more: Facts) -> Facts:
        """For a report: the checkpoint, the index, `more`, the machine and the time."""
        index: Facts = {"index": "none"}
        if self.snapshot is not None:
            index = {"index": self.snapshot.info.version, "passages": len(self.snapshot), "K": self.options.n_docs}
        return {"checkpoint": checkpoint.name, **index, **more, **run_facts(self.started)}


@contextmanager
def swept_over(settings: Settings, options: Options, checkpoint: Checkpoint) -> Iterator[PaperAsking]:
    """Asks over the index of the settings, which only searching needs.

    Raises IndexIncompatible where the checkpoint's question encoder is to search vectors of another passage encoder.
    """
    searching = [checkpoint] if {"dense", "hybrid"} & set(options.retrievers) else []
    opened: AbstractContextManager[IndexSnapshot | None] = nullcontext()
    if options.retrievers != (CLOSED_BOOK,):
        opened = open_index(settings, max((options.n_docs, *options.sweep)), *searching)
    with options.progress() as progress, opened as snapshot:
        yield PaperAsking(options, snapshot, progress)


def measure_qa(settings: Settings, options: Options) -> Report:
    """Exact match, F1, recall, and exact match where no passage holds an answer, of each file; again for each K.

    Answers are kept and not asked again. Raises InvalidRequest for an index with fewer than K passages,
    RetrieverUnavailable for "bm25" without its files.
    """
    asked = options.read(options.files, partial(read_qa, patterns=options.patterns))
    (checkpoint,) = load_checkpoints(settings)
    answered: Rows = []
    recalled: Rows = []
    swept: Rows = []
    with swept_over(settings, options, checkpoint) as asking:
        for name, questions in asked:
            golds = [question.golds for question in questions]
            texts = [question.text for question in questions]
            for one in asking.ask(checkpoint, options.retrievers, name, texts):
                held = one.retrieval.held(golds)
                recalled += [
                    (name, one.retrieval.retriever, k, len(held), percent(any(of_text[:k]) for of_text in held))
                    for k in RECALL_AT
                    if k <= min(map(len, held))
                ]
                rows, more = one.rows(name, options, partial(qa_cells, golds, held))
                answered += rows
                swept += more
        marked = ("decoding", "questions", *ANSWER_METRICS, "answer in a passage", "EM, answer in no passage")
        tables = with_rows(
            Table("Open-domain answers", ("file", "retriever", *marked), answered),
            Table("Retrieval", ("file", "retriever", "k", "questions", "answer in top k"), recalled),
            Table(SWEEP_TITLE, ("file", "retriever", "K", *marked), swept),
        )
        return Report("qa", asking.facts(checkpoint, {}), tables)


def qa_cells(
    golds: Sequence[Golds], held: Sequence[Sequence[bool]], answers: Sequence[GivenAnswer], k: int
) -> tuple[Cell, ...]:
    """How many questions; the metrics of answers; the share whose first `k` passages hold an answer; and EM over the
    others, which an extractive reader could not have answered (section 4.1). The last two are empty without passages.
    """
    marks = mark_answers(answers, golds)
    if k == 0:
        return *marks.cells(), None, None
    aided = [any(of_question[:k]) for of_question in held]
    unaided = [right for right, is_aided in zip(marks.by_metric["EM"], aided, strict=True) if not is_aided]
    return *marks.cells(), percent(aided), percent(unaided)


def measure_generation(settings: Settings, options: Options) -> Report:
    """BLEU-1, ROUGE-L, Q-BLEU-1 and distinct tri-grams of each file, in percent, beside the references' diversity;
    again for each K. Texts are kept and not written again."""
    prompts = options.read(options.files, read_prompts)
    (checkpoint,) = load_checkpoints(settings)
    written: Rows = []
    swept: Rows = []
    with swept_over(settings, options, checkpoint) as asking:
        for name, of_file in prompts:
            references = [prompt.references for prompt in of_file]
            gold = 100 * distinct_trigrams(of_prompt[0] for of_prompt in references)
            written.append((name, "people", "", len(of_file), None, None, None, gold))
            texts = [prompt.text for prompt in of_file]
            for one in asking.ask(checkpoint, options.retrievers, name, texts, options.max_new_tokens):
                rows, more = one.rows(name, options, partial(text_cells, references))
                written += rows
                swept += more
        measures = ("decoding", "texts", "BLEU-1", "ROUGE-L", "Q-BLEU-1", "distinct tri-grams, %")
        tables = with_rows(
            Table("Generated text", ("file", "written by", *measures), written),
            Table(SWEEP_TITLE, ("file", "written by", "K", *measures), swept),
        )
        return Report("generation", asking.facts(checkpoint, {"max_new_tokens": options.max_new_tokens}), tables)


def text_cells(references: Sequence[Sequence[str]], answers: Sequence[GivenAnswer], _k: int) -> tuple[Cell, ...]:
    """How many texts; BLEU-1 of the corpus; ROUGE-L; Q-BLEU-1; and the share of distinct tri-grams, in percent."""
    texts = [answer.text for answer in answers]
    count, _, overlap, answerable = mark_texts(answers, references).cells()
    return count, 100 * bleu_1(texts, references), overlap, answerable, 100 * distinct_trigrams(texts)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to retrieve passages, with the checkpoint that reads them."""

    name: str
    checkpoint: Checkpoint
    retriever: Finding


def arms_of(checkpoint: Checkpoint, frozen: Checkpoint | None = None) -> tuple[Arm, ...]:
    """Learned retrieval first: the others are compared with it.

    `frozen` is a checkpoint trained with a frozen question encoder, as in the paper's row. Without it, the same
    generator reads what the passage encoder's own vectors of the questions find.
    """
    return (
        Arm("learned", checkpoint, "dense"),
        Arm("frozen", checkpoint, "frozen") if frozen is None else Arm("frozen in training", frozen, "dense"),
        Arm("BM25", checkpoint, "bm25"),
        Arm("none: closed book", checkpoint, CLOSED_BOOK),
    )


def measure_ablation(settings: Settings, options: Options) -> Report:
    """Each arm's marks and, paired text by text, how far they are from the first arm's marks with the same model.

    Questions have exact match and F1; `texts` have the metrics of generation, each the mean over
    the texts. Answers are kept. Raises RetrieverUnavailable for an index without BM25.
    """
    if not options.files and not options.texts:
        raise SettingInvalid(setting="FILE", reason="name a file of questions, or one of --texts")
    asked = options.read(options.files, partial(read_qa, patterns=options.patterns))
    prompts = options.read(options.texts, read_prompts)
    checkpoint, *others = load_checkpoints(settings, (options.frozen,) if options.frozen else ())
    arms = arms_of(checkpoint, *others)
    opened = open_index(settings, options.n_docs, checkpoint, *others)
    answered: Rows = []
    written: Rows = []
    with options.progress() as progress, opened as snapshot:
        asking = PaperAsking(options, snapshot, progress)

        def by_arm(name: str, texts: Sequence[str], longest: int | None = None) -> dict[str, TextAnswers]:
            return {
                arm.name: answers
                for arm in arms
                for answers in asking.ask(arm.checkpoint, (arm.retriever,), f"{name}, {arm.name}", texts, longest)
            }

        for name, questions in asked:
            answers = by_arm(name, [question.text for question in questions])
            golds = [question.golds for question in questions]
            answered += compare(name, answers, options, partial(mark_answers, golds=golds))
        for name, of_file in prompts:
            answers = by_arm(name, [prompt.text for prompt in of_file], options.max_new_tokens)
            references = [prompt.references for prompt in of_file]
            written += compare(name, answers, options, partial(mark_texts, references=references))
        read_by: Facts = {arm.name: arm.checkpoint.name for arm in arms if arm.checkpoint is not checkpoint}
        facts = asking.facts(checkpoint, {})
    tables = with_rows(
        Table("Retrieval ablation: answers", columns_of(*ANSWER_METRICS), answered),
        Table("Retrieval ablation: texts", columns_of("BLEU-1", "ROUGE-L", "Q-BLEU-1"), written),
    )
    return Report("ablation", {**facts, **read_by}, tables)


def columns_of(*metrics: str) -> tuple[str, ...]:
    """The columns of a table of these metrics."""
    points = (f"{metric}, points" for metric in metrics)
    return ("file", "retrieval", "decoding", "texts", *metrics, "compared with", *points)


def compare(
    file: str, by_arm: Mapping[str, TextAnswers], options: Options, mark: Callable[[Sequence[GivenAnswer]], Marks]
) -> Rows:
    """For each model the arms in their order, and each against the first."""
    rows: Rows = []
    marks: dict[tuple[str, Decode], Marks] = {}
    for decode in decodes_of(options):
        base: Marks | None = None
        for arm, answers in by_arm.items():
            by_decode = answers.of(options.n_docs)
            # a closed book is one model, and both models of the first arm are compared with it
            own = decode if decode in by_decode else next(iter(by_decode))
            given = by_decode[own]
            if (arm, own) not in marks:
                marks[arm, own] = mark(given)
            mine = marks[arm, own]
            row: tuple[Cell, ...] = (file, arm, answers.describe(own), len(given), *mine.means())
            if base is None:
                base = mine
                rows.append((*row, "", *(None for _ in mine.by_metric)))
            else:
                rows.append((*row, str(decode), *mine.minus(base).means()))
    return rows
