"""openbook eval, a row of a table for each experiment; eval seeds; and calibrate"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from openbook.cli.consoles import say
from openbook.cli.options import REQUIRED, argument, group, option, with_options
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_lab.evaluation.options import Options, books_of, set_threads
from openbook_lab.evaluation.reports import ReportFiles

COMPUTING = ("checkpoint", "device", "dtype", "threads")
OF_INDEXES = (*COMPUTING, "indexes")
SEARCHING = (*OF_INDEXES, "index")
FILES = ("json_file", "markdown_file")
KEPT = (*FILES, "seed", "sample", "work")
PARAGRAPHS = (*KEPT, "questions", "held_out", "every")
BOOK = (*PARAGRAPHS, "passages", "encoder", "n_docs")
INDEXED = (*KEPT, "n_docs")
SWEPT = (*INDEXED, "model", "num_beams", "decoding", "encoder", "retriever", "closed_book", "k", "plot")


@dataclass(frozen=True, slots=True)
class Experiment:
    """A command of `openbook eval`: what it calls, which settings and options it offers, and what help says of it.

    `measure` is a function of this room, called with both: "paper:measure_qa". `other` defaults are its own.
    """

    measure: str
    settings: tuple[str, ...]
    options: tuple[str, ...]
    help: str
    other: dict[str, object] = field(default_factory=dict)

    def command(self) -> Callable[..., None]:
        """For typer; what it calls is imported when it runs."""

        def run(settings: Settings, options: Options) -> None:
            sweeps = "k" in (*self.options, *self.other)
            if sweeps and options.plot is not None and not (options.k and "sweep" in options.part):
                missing = "give each K with --k" if not options.k else "--part sweep"
                raise SettingInvalid(setting="--plot", reason=f"draws K at test time; {missing}")
            module, _, name = self.measure.partition(":")
            report = getattr(import_module(f"openbook_lab.evaluation.{module}"), name)(settings, options)
            options.show(report)
            if sweeps and options.plot is not None:
                from openbook_lab.evaluation.sweep_plot import draw_sweep

                draw_sweep(report, options.plot)

        run.__doc__ = self.help
        run.__annotations__ = {
            "settings": _named(Settings, *self.settings),
            "options": _named(Options, *self.options, self.other),
        }
        return with_options(run)


def _named(kind: type, *names: object) -> Any:
    return Annotated.__class_getitem__((kind, *names))  # type: ignore[attr-defined]


EXPERIMENTS = {
    "reading": Experiment(
        "reading:read_paragraphs",
        COMPUTING,
        (*PARAGRAPHS, "num_beams"),
        "Reading alone: exact match and F1 with the paragraph of each question given whole.",
        {"questions": REQUIRED},
    ),
    "open": Experiment(
        "open_domain:measure_open",
        COMPUTING,
        (*BOOK, "part", "retriever", "plot"),
        """Open domain: questions asked of the paragraphs of all questions, in 100-word pieces, and of more passages.

    Shows how often an answer is retrieved, exact match and F1 of each way of decoding with a 95% interval, and K at
    test time.
    """,
        {"questions": REQUIRED, "k": (1, 2, 3, 5, 8, 10, 15, 20), "num_beams": 4},
    ),
    "leaders": Experiment(
        "leaders:measure_leaders",
        OF_INDEXES,
        (*FILES, "url", "seed", "n_docs", "one_model", "num_beams", "sample", "versions"),
        """Ask who leads, of the offices that changed hands between 2016 and 2018 (the paper's section 4.5).

    Shows for each index how many answers are the holder of 2016 and of 2018. The book of one year should give the
    holders of that year, and none of the other year.
    """,
    ),
    "qa": Experiment(
        "paper:measure_qa",
        SEARCHING,
        (*SWEPT, "patterns"),
        """Open-domain question answering over an index: the paper's Table 1.

    Shows exact match and F1 of each file with a 95% interval, how often the passages hold an answer, and exact match
    where they hold none; with --k again for each K (Figure 3). FILE has questions: NQ-open's, TriviaQA's,
    WebQuestions', CuratedTrec's, DPR's .csv, SQuAD's.
    """,
        {"files": REQUIRED},
    ),
    "answers": Experiment(
        "answers:measure_answers",
        SEARCHING,
        (*FILES, "n_docs", "seed", "sample", "answers_file", "answers_before"),
        """Questions to your own text, asked as the service answers them: each answer with its evidence, to be read.

    Shows how many are right (a right answer stands in the answer), right in the evidence, half right (F1 above 0.5),
    wrong and refused, by kind; of questions without an answer, how many are refused. FILE has lines of question,
    answers (none where the text does not answer) and, if you like, kind. Without --n-docs the service chooses K.
    """,
        {"files": REQUIRED, "n_docs": None},
    ),
    "following": Experiment(
        "follow_ups:measure_follow_ups",
        SEARCHING,
        (*FILES, "n_docs", "seed", "sample", "one_retriever"),
        """Questions that lean on the turns before them: how they are completed, and what is found then.

    Shows how many become the whole question word for word, and how many find a passage that holds an answer: as they
    are, completed, and as the whole question. FILE has lines of question, history, full, answers and, if you like,
    kind and folder, the index that answers.
    """,
        {"files": REQUIRED},
    ),
    "prompts": Experiment(
        "prompts:measure_prompts",
        SEARCHING,
        (*INDEXED, "patterns"),
        """A causal checkpoint's marginals against the same model with all passages in one prompt, as most services do.

    Shows exact match, F1, how often a right answer is named, and seconds, of RAG-Token, RAG-Sequence, the top passage
    alone and the single prompt, each with its paired difference from the last. All are greedy. FILE is as of eval qa.
    """,
        {"files": REQUIRED},
    ),
    "fever": Experiment(
        "claims:measure_claims",
        SEARCHING,
        (*INDEXED, "model", "target", "one_retriever", "closed_book"),
        """Fact verification: which label is the likeliest, and whether the gold article is found (Table 2).

    FILE has FEVER's JSON lines: claim, label, evidence.
    """,
        {"files": REQUIRED},
    ),
    "generation": Experiment(
        "paper:measure_generation",
        SEARCHING,
        (*SWEPT, "max_new_tokens"),
        """Abstractive answers and Jeopardy clues: BLEU-1, ROUGE-L, Q-BLEU-1, diversity (Tables 2, 4 and 5); with --k
    again for each K (Figure 3).

    FILE is of MS-MARCO NLG, Jeopardy or SearchQA, or has lines of input, references.
    """,
        {"files": REQUIRED, "num_beams": 4, "decoding": "fast"},
    ),
    "ablation": Experiment(
        "paper:measure_ablation",
        SEARCHING,
        (
            *INDEXED,
            "files",
            "model",
            "num_beams",
            "decoding",
            "encoder",
            "texts",
            "frozen",
            "patterns",
            "max_new_tokens",
        ),
        """What retrieval is worth: learned, frozen, BM25, and no passages at all (Table 6).

    One table of the same questions, each row with its difference from learned retrieval and that difference's paired
    95% interval. The index must hold BM25: openbook index bm25 VERSION. FILE is as of eval qa.
    """,
    ),
    "precision": Experiment(
        "precision:measure_precisions",
        ("checkpoint", "threads"),
        BOOK,
        """What a precision costs in answers: exact match, F1, and the share of questions that are answered otherwise.

    The questions are asked of the paragraphs of all questions, in 100-word pieces, with the passages that the question
    encoder finds in float32. Runs on the processor.
    """,
        {"questions": REQUIRED, "num_beams": 4},
    ),
}


@with_options
def seeds(
    files: ReportFiles,
    reports: tuple[str, ...] = argument(
        "[ARM=]REPORT...",
        "What --json of one command wrote, once for each seed. Reports that are to be compared carry the name of "
        "their arm: learned=a0.json learned=a1.json frozen=b0.json frozen=b1.json.",
    ),
    measure: tuple[str, ...] = option((), "Such as EM; again for more. Default: all.", metavar="COLUMN"),
    row: tuple[str, ...] = option(
        (), "Rows that this text stands in; again: all of them must. Default: all.", metavar="TEXT"
    ),
) -> None:
    """Mean and spread over seeds, of the reports that other commands wrote with --json.

    Of several arms also how far the first is from each other one: the seeds paired in the order given, with the 95%
    interval of Student's t.
    """
    from openbook_lab.evaluation.seeds import arms_of, measure_seeds

    files.show(measure_seeds(arms_of(reports), measures=measure, texts=row))


@with_options
def calibrate(
    settings: Annotated[Settings, "indexes", "device", "dtype", "threads"],
    options: Annotated[Options, *KEPT, "n_docs", {"work": Path("runs/calibrate")}],
    name: str | None = argument("CHECKPOINT", "A folder or a name, as of serve --checkpoint. Default: as serve.", None),
    book: tuple[str, ...] = option(
        (),
        "A version and a file of questions with answers, as of eval open; again for more files or versions, which are "
        "fitted together. The version must hold BM25.",
        metavar="VERSION=FILE",
    ),
    index: str | None = option(
        None,
        "In place of --book: fit how sure the prior is to questions that this version's own passages make, --sample of "
        "them (default 200). The version must hold BM25.",
        metavar="VERSION",
    ),
    to: Path | None = option(
        None,
        "Copy CHECKPOINT there and write into the copy. Default: into CHECKPOINT where it is a folder, else a copy at "
        "CHECKPOINT-VERSION.",
        "--output",
        metavar="FOLDER",
    ),
    dry_run: bool = option(False, "Fit and show, and write nothing."),
    measure: bool = option(
        False,
        "Fit nothing, write nothing: measure the prior, model and threshold that CHECKPOINT has.",
    ),
) -> None:
    """Fit a checkpoint's prior to questions, and find its better model and when it should not answer.

    The prior: two weights, of inner products and of BM25 scores, that minimise the paper's loss (section 2.4), half
    RAG-Token's and half RAG-Sequence's, over the K best of each question's candidates: the best 10 of either search.
    The model: RAG-Token or RAG-Sequence, greedy, whichever has more exact matches over that prior.
    No answer: its probability, from p(empty answer | x) of all passages and of the surest one and from how much of the
    question they hold, and a threshold on it. Each question is asked three times: as it is, without every article that
    holds an answer, and without every passage that does. Questions of FILE without answers are asked as they are.
    The generator reads the candidates once; what it says is kept in --work.

    With --index no question is needed and nothing is read. The prior's scale alone is fitted, and stays where it is
    not clearly wrong for the version; where CHECKPOINT has no prior, both scores weigh alike.
    """
    from openbook.rag.checkpoint import load_checkpoint, locate
    from openbook.storage.opening import store_of
    from openbook_lab.evaluation.book_study import CANDIDATES
    from openbook_lab.evaluation.calibration import calibrate_checkpoint, copy_checkpoint, write_facts
    from openbook_lab.evaluation.made_book import calibrate_to_passages

    if options.n_docs > CANDIDATES:
        raise SettingInvalid(setting="--n-docs", reason=f"a question has {CANDIDATES} candidates")
    if bool(book) == bool(index):
        reason = "give either your own questions, --book VERSION=FILE, or a version that makes them, --index VERSION"
        raise SettingInvalid(setting="--book, --index", reason=reason)
    books = books_of(book, options.sample, options.seed)
    version = index or next(iter(books))
    source = name or settings.checkpoint
    folder = locate(source)
    output = to or (folder if Path(source).is_dir() else Path(f"{Path(source).name}-{version}"))
    set_threads(settings)
    checkpoint = load_checkpoint(folder, device=settings.device, dtype=settings.dtype)
    writes = not (dry_run or measure)
    with options.progress() as progress:
        if index:
            report, learnt = calibrate_to_passages(
                checkpoint,
                store_of(settings),
                index,
                most=options.sample,
                seed=options.seed,
                n_docs=options.n_docs,
                progress=progress,
                fit=not measure,
            )
        else:
            report, learnt = calibrate_checkpoint(
                checkpoint,
                folder,
                books,
                store_of(settings),
                n_docs=options.n_docs,
                work=options.work,
                progress=progress,
                fit=not measure,
            )
    options.show(report)
    if not (writes and learnt):
        say(f"nothing is written: {folder} stays {checkpoint.name}")
        return
    if output != folder:
        copy_checkpoint(checkpoint, folder, output)
    written = write_facts(output, learnt)
    *others, last = learnt
    wrote = f"wrote {', '.join(others)} and {last}" if others else f"wrote {last}"
    say(f"{wrote} to {written}; the fingerprint of {checkpoint.name} changes with it")
    say(f"serve it: openbook serve --checkpoint {output} --index {version}")


app = group(
    "Measure how well a checkpoint answers, and make its tables.",
    {name: experiment.command() for name, experiment in EXPERIMENTS.items()} | {"seeds": seeds},
)
