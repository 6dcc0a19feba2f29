"""openbook eval: reading, open, posteriors, leaders, facts, qa, prompts, fever, generation, ablation, precision, seeds;
and calibrate"""

from pathlib import Path
from typing import Annotated, Literal

from openbook.cli.consoles import say
from openbook.cli.options import argument, group, option, plot_to_write, with_options
from openbook.errors import CheckpointNotFound
from openbook.settings import Settings
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.options import (
    CLOSED_BOOK_TOO,
    BookQuestions,
    CalibrationOptions,
    Decoded,
    IndexedFiles,
    OpenQuestions,
    PublicFiles,
    QuestionOptions,
    Swept,
    SweptTexts,
    load_checkpoints,
    set_threads,
)
from openbook_lab.evaluation.reports import Report, ReportFiles
from openbook_lab.evaluation.world import WorldQuestions

Computing = Annotated[Settings, "checkpoint", "device", "dtype", "threads"]
OfIndexes = Annotated[Settings, "checkpoint", "indexes", "device", "dtype", "threads"]
Searching = Annotated[Settings, "checkpoint", "indexes", "index", "device", "dtype", "threads"]
QUESTIONS = "Questions: NQ-open, TriviaQA, WebQuestions, CuratedTrec, DPR's .csv, SQuAD."
PATTERNS = option(False, "The answers are regular expressions (CuratedTrec as DrQA has it).")


@with_options
def reading(
    settings: Computing,
    options: QuestionOptions,
    num_beams: tuple[int, ...] = option((1,), "Width of the beam search; again for more. Default: 1, greedy.", min=1),
    against: tuple[str, ...] = option((), "Another checkpoint, side by side; again for more.", metavar="CHECKPOINT"),
) -> None:
    """Reading alone: exact match and F1 with the paragraph of each question given whole."""
    from openbook_lab.evaluation.reading import read_paragraphs

    asked = options.asked()
    checkpoints = load_checkpoints(settings, against)
    with options.progress() as progress:
        report = read_paragraphs(
            checkpoints, asked, work=options.work, num_beams=num_beams, seed=options.seed, progress=progress
        )
    options.show(report)


@with_options
def open_domain(
    settings: Computing,
    options: OpenQuestions,
    plot: Path | None = option(
        None, "Draw EM and recall over K there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    ),
) -> None:
    """Open domain: questions asked of the paragraphs of all questions, in 100-word pieces, and of more passages.

    Shows how often an answer is retrieved, exact match and F1 of each way of decoding with a 95% interval, what the
    gold passage is worth, K at test time, and the differences on the same questions.
    """
    from openbook_lab.evaluation.open_domain import measure_open

    _show_sweep(options, measure_open(settings, options), plot)


@with_options
def posteriors(
    settings: Computing,
    options: BookQuestions,
    unanswerable: tuple[Path, ...] = option(
        (), "Questions that their paragraph does not answer (SQuAD 2.0's); again for more.", metavar="FILE"
    ),
    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1),
    retriever: Literal["dense", "hybrid"] = option("dense", "hybrid: with no_answer as it is calibrated."),
    plot: Path | None = option(
        None, "Draw the curves there, .png or .svg; needs matplotlib.", metavar="FILE", callback=plot_to_write
    ),
) -> None:
    """Posteriors and probabilities: which passage an answer is from, and whether there is one at all.

    Asks questions that the book answers, questions that their paragraph does not answer, and the former again without
    their articles. Shows how often the passage of the largest posterior holds a right answer, how well log_prob and
    no_answer tell the three apart (AUC), and which threshold keeps how many right answers.
    """
    from openbook_lab.evaluation.posteriors import draw_curves, measure_posteriors

    report, outcomes = measure_posteriors(settings, options, unanswerable, num_beams, retriever)
    options.show(report)
    if plot is not None:
        draw_curves(outcomes, plot)


@with_options
def leaders(
    settings: OfIndexes,
    options: WorldQuestions,
    index: tuple[str, ...] = option(
        tuple(DEMO_YEARS), "Version to ask; give it again for more. Default: wiki-2016, wiki-2018."
    ),
    sample: int | None = option(None, "So many questions of each style. Default: all.", min=1),
    shuffled: tuple[int, ...] = option(
        (),
        "Build the encyclopedia with its holders dealt out anew by this seed, and ask it too; with --url in the "
        "service's own --indexes, else in a temporary folder. Give it again for more.",
        metavar="SEED",
    ),
) -> None:
    """Ask who leads, of the offices that changed hands between 2016 and 2018 (the paper's section 4.5).

    Shows for each index how many answers are the holder of 2016 and of 2018. The book of one year should give the
    holders of that year, and none of the other year.
    """
    from openbook_lab.evaluation.leaders import measure_leaders

    options.show(measure_leaders(settings, options, versions=index, sample=sample, shuffled=shuffled))


@with_options
def facts(
    settings: OfIndexes,
    options: WorldQuestions,
    year: tuple[Literal["2016", "2018"], ...] = option(("2016", "2018"), "Asks wiki-2016 or wiki-2018. Default: both."),
    kind: tuple[str, ...] = option((), "Kind of fact, such as capital; give it again for more. Default: all."),
    sample: int = option(40, "So many questions of each kind of fact.", min=1),
) -> None:
    """Ask for facts of countries: capital, population, GDP and so on, of the book of each year.

    Shows how many answers are that book's, and, of the facts that changed, how many are the other year's.
    """
    from openbook_lab.evaluation.facts import measure_facts

    versions = [f"wiki-{one}" for one in year]
    options.show(measure_facts(settings, options, versions=versions, kinds=kind, per_kind=sample))


@with_options
def qa(
    settings: Searching,
    options: Swept,
    files: tuple[Path, ...] = argument("FILE...", QUESTIONS),
    patterns: bool = PATTERNS,
) -> None:
    """Open-domain question answering over an index: the paper's Table 1.

    Shows exact match and F1 of each file with a 95% interval, how often the passages hold an answer, and exact match
    where they hold none; with --k again for each K (Figure 3).
    """
    from openbook_lab.evaluation.paper import measure_qa

    _show_sweep(options, measure_qa(settings, options, files, patterns=patterns), options.plot)


@with_options
def prompts(
    settings: Searching,
    options: IndexedFiles,
    files: tuple[Path, ...] = argument("FILE...", QUESTIONS),
    patterns: bool = PATTERNS,
) -> None:
    """A causal checkpoint's marginals against the same model with all passages in one prompt, as most services do it.

    Shows exact match, F1, how often a right answer is named, and seconds, of RAG-Token, RAG-Sequence, the top passage
    alone and the single prompt, each with its paired difference from the last. All are greedy.
    """
    from openbook_lab.evaluation.prompts import measure_prompts

    options.show(measure_prompts(settings, options, files, patterns=patterns))


@with_options
def fever(
    settings: Searching,
    options: PublicFiles,
    file: Path = argument("FILE", "FEVER's JSON lines: claim, label, evidence."),
    target: tuple[str, ...] = option(
        (),
        "What the checkpoint says for SUPPORTS, REFUTES and NOT ENOUGH INFO: given three times, in this order. "
        "Default: these words.",
    ),
    retriever: Literal["dense", "bm25", "hybrid"] | None = option(
        None, "dense, bm25, hybrid. Default: dense, or none with --closed-book."
    ),
    closed_book: bool = CLOSED_BOOK_TOO,
) -> None:
    """Fact verification: which label is the likeliest, and whether the gold article is found (Table 2)."""
    from openbook_lab.evaluation.claims import measure_claims

    options.show(measure_claims(settings, options, file, target=target, retriever=retriever, closed_book=closed_book))


@with_options
def generation(
    settings: Searching,
    options: SweptTexts,
    files: tuple[Path, ...] = argument("FILE...", "MS-MARCO NLG, Jeopardy or SearchQA; or lines of input, references."),
    max_new_tokens: int = option(64, "Longest text, in tokens.", min=1),
) -> None:
    """Abstractive answers and Jeopardy clues: BLEU-1, ROUGE-L, Q-BLEU-1, diversity (Tables 2, 4 and 5); with --k again
    for each K (Figure 3)."""
    from openbook_lab.evaluation.paper import measure_generation

    report = measure_generation(settings, options, files, max_new_tokens=max_new_tokens)
    _show_sweep(options, report, options.plot)


@with_options
def ablation(
    settings: Searching,
    options: Decoded,
    files: tuple[Path, ...] = argument("[FILE]...", QUESTIONS, default=()),
    texts: tuple[Path, ...] = option((), "Texts to write, as of eval generation; again for more.", metavar="FILE"),
    frozen: str | None = option(
        None,
        "One that was trained with its question encoder frozen. Without it, the passage encoder's vectors of the "
        "questions search for --checkpoint's generator.",
        metavar="CHECKPOINT",
    ),
    patterns: bool = PATTERNS,
    max_new_tokens: int = option(64, "Longest text of --texts, in tokens.", min=1),
) -> None:
    """What retrieval is worth: learned, frozen, BM25, and no passages at all (Table 6).

    One table of the same questions, each row with its difference from learned retrieval and that difference's paired
    95% interval. The index must hold BM25: openbook index bm25 VERSION.
    """
    from openbook_lab.evaluation.paper import measure_ablation

    options.show(
        measure_ablation(
            settings, options, files, texts, frozen=frozen, patterns=patterns, max_new_tokens=max_new_tokens
        )
    )


@with_options
def precision(
    settings: Annotated[Settings, "checkpoint", "threads"],
    options: BookQuestions,
    precisions: tuple[Literal["float32", "bfloat16", "int8"], ...] = option(
        ("float32", "bfloat16", "int8"),
        "Again for more; the others are compared with the first. Default: all three.",
        "--precision",
    ),
    num_beams: int = option(4, "Width of the beam search, beside greedy decoding.", min=2),
    thorough: bool = option(False, "RAG-Sequence's thorough decoding, too.", "--thorough/--no-thorough"),
) -> None:
    """What a precision costs in answers: exact match, F1, and the share of questions that are answered otherwise.

    The questions are asked of the paragraphs of all questions, in 100-word pieces, with the passages that the question
    encoder finds in float32. Runs on the processor.
    """
    from openbook_lab.evaluation.precision import measure_precisions

    options.show(measure_precisions(settings, options, precisions, num_beams=num_beams, thorough=thorough))


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
    options: CalibrationOptions,
    folder: Path = argument("CHECKPOINT", "Folder of the checkpoint; its openbook.json is written."),
    dry_run: bool = option(False, "Fit and show, and write nothing into CHECKPOINT."),
    measure: bool = option(
        False,
        "Fit nothing, write nothing: measure the prior, model and threshold that CHECKPOINT has.",
    ),
) -> None:
    """Fit a checkpoint's prior to questions, and find its better model and when it should not answer.

    The prior: two weights, of inner products and of BM25 scores, that minimise the paper's loss (section 2.4), half
    RAG-Token's and half RAG-Sequence's, over the K best of each question's candidates: the best 10 of either search.
    The model: RAG-Token or RAG-Sequence, greedy, whichever has more exact matches over that prior.
    No answer: its probability, from p(empty answer | x) and the best doc_score, and a threshold on it. Each question is
    asked three times: as it is, without every article that holds an answer, and without every passage that does.
    The generator reads the candidates once; what it says is kept in --work.
    """
    from openbook.rag.checkpoint import FACTS_FILE, load_checkpoint
    from openbook.storage.index_store import IndexStore
    from openbook_lab.evaluation.abstention import draw_risk
    from openbook_lab.evaluation.calibration import calibrate_checkpoint

    books = options.books()
    if not folder.is_dir():
        raise CheckpointNotFound(checkpoint=str(folder), reason="Name a folder: the result is written there.")
    set_threads(settings)
    checkpoint = load_checkpoint(folder, device=settings.device, dtype=settings.dtype)
    with options.progress() as progress:
        report, calibration, asked = calibrate_checkpoint(
            checkpoint,
            folder,
            books,
            IndexStore(settings.indexes_folder),
            n_docs=options.n_docs,
            work=options.work,
            progress=progress,
            fit=not measure,
        )
    options.show(report)
    if options.plot is not None:
        draw_risk(asked, calibration.abstention, options.plot)
    if dry_run or measure:
        say(f"nothing is written: {folder} stays {checkpoint.name}")
        return
    calibration.write(folder)
    wrote = f"wrote prior, model and no_answer to {folder / FACTS_FILE}"
    say(f"{wrote}; the fingerprint of {checkpoint.name} changes with it")


def _show_sweep(options: ReportFiles, report: Report, plot: Path | None) -> None:
    """Show the report, and draw its sweep over K."""
    from openbook_lab.evaluation.sweep_plot import draw_sweep

    options.show(report)
    if plot is not None:
        draw_sweep(report, plot)


app = group(
    "Measure how well a checkpoint answers, and make its tables.",
    {
        "reading": reading,
        "open": open_domain,
        "posteriors": posteriors,
        "leaders": leaders,
        "facts": facts,
        "qa": qa,
        "prompts": prompts,
        "fever": fever,
        "generation": generation,
        "ablation": ablation,
        "precision": precision,
        "seeds": seeds,
    },
)
