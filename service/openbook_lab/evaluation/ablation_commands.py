"""openbook eval ablation, seeds: what retrieval is worth, and what other seeds would have come to"""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.options import takes_settings
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_lab.evaluation.paper_commands import (
    READING,
    Beams,
    DecodingOption,
    Docs,
    Models,
    Patterns,
    Sample,
    drawn,
    models,
    open_index,
)
from openbook_lab.evaluation.question_commands import WORK, Encoder, Seed, Work, kept_in, load_checkpoints
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show


@takes_settings(*READING)
def ablation(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Questions: NQ-open, TriviaQA, WebQuestions, CuratedTrec, DPR's .csv, SQuAD."
        ),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Texts to write, as of eval generation; again for more."),
    ] = None,
    frozen: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="One that was trained with its question encoder frozen. Without it, the passage encoder's vectors of "
            "the questions search for --checkpoint's generator.",
        ),
    ] = None,
    patterns: Patterns = False,
    model: Models = None,
    n_docs: Docs = 5,
    num_beams: Beams = 1,
    decoding: DecodingOption = "thorough",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest text of --texts, in tokens.")] = 64,
    sample: Sample = None,
    seed: Seed = 0,
    encoder: Encoder = None,
    work: Work = WORK,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """What retrieval is worth: learned, frozen, BM25, and no passages at all (Table 6).

    One table of the same questions, each row with its difference from learned retrieval and that difference's paired
    95% interval. The index must hold BM25: openbook index bm25 VERSION.
    """
    from openbook_lab.datasets.generation_files import read_prompts
    from openbook_lab.datasets.question_files import read_qa
    from openbook_lab.evaluation.ablation import arms_of, measure_ablation
    from openbook_lab.evaluation.index_asking import PaperPlan

    if not files and not texts:
        raise SettingInvalid(setting="FILE", reason="name a file of questions, or one of --texts")
    asked = [(file.name, drawn(read_qa(file, patterns=patterns), sample, seed)) for file in files or ()]
    prompts = [(file.name, drawn(read_prompts(file), sample, seed)) for file in texts or ()]
    checkpoint, *others = load_checkpoints(settings, [frozen] if frozen else None)
    plan = PaperPlan(("dense",), models(model), n_docs, num_beams, decoding, encoder)
    opened = open_index(settings, n_docs, checkpoint, *others)
    with ProgressBar(stopped=kept_in(work)) as progress, closing(opened) as snapshot:
        report = measure_ablation(
            arms_of(checkpoint, *others),
            asked,
            prompts,
            snapshot,
            plan,
            max_new_tokens=max_new_tokens,
            work=work,
            progress=progress,
        )
    show(report, json_file, markdown_file)


def seeds(
    reports: Annotated[
        list[str],
        typer.Argument(
            metavar="[ARM=]REPORT...",
            help="What --json of one command wrote, once for each seed. Reports that are to be compared carry the name "
            "of their arm: learned=a0.json learned=a1.json frozen=b0.json frozen=b1.json.",
        ),
    ],
    measure: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Such as EM; again for more. Default: all.")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Rows that this text stands in; again: all of them must. Default: all."),
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Mean and spread over seeds, of the reports that other commands wrote with --json.

    Of several arms also how far the first is from each other one: the seeds paired in the order given, with the 95%
    interval of Student's t.
    """
    from openbook_lab.evaluation.seeds import measure_seeds, read_reports

    arms: dict[str, list[Path]] = {}
    for one in reports:
        arm, equals, file = one.partition("=")
        # an equals sign may be the file's own
        named = equals and not Path(one).exists()
        arms.setdefault(arm if named else "", []).append(Path(file if named else one))
    report = measure_seeds(
        {arm: read_reports(files) for arm, files in arms.items()}, measures=measure or (), texts=row or ()
    )
    show(report, json_file, markdown_file)
