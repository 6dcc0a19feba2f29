"""openbook train, openbook checkpoint average"""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid

WORLDS = 4
Files = list[Path]
Loss = Literal["token", "sequence", "both"]
Dtype = Literal["auto", "float32", "bfloat16"]


class Part(StrEnum):
    """What can be left as it is; typer takes a list of enumerated values, but of no literals."""

    QUESTION_ENCODER = "question-encoder"
    GENERATOR_ENCODER = "generator-encoder"
    GENERATOR_DECODER = "generator-decoder"


def _files(help_text: str) -> Any:
    return typer.Option(metavar="FILE", help=help_text)


def train(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Folder of the checkpoint to write; a new one.")],
    paragraphs: Annotated[
        Files | None, _files("Questions over paragraphs, such as SQuAD's; give it again for more.")
    ] = None,
    sentences: Annotated[Files | None, _files("Questions over single sentences, such as QAMR's.")] = None,
    unanswerable: Annotated[
        Files | None, _files("Questions that their paragraph does not answer, such as SQuAD 2.0's.")
    ] = None,
    questions: Annotated[
        Files | None,
        _files("Questions alone: NQ-open's, TriviaQA's, WebQuestions'; passages are found for those with answers."),
    ] = None,
    texts: Annotated[
        Files | None,
        _files('Texts to write: MS-MARCO NLG\'s, Jeopardy\'s, or lines of {"input", "references": [...]}.'),
    ] = None,
    claims: Annotated[
        Files | None, _files("Claims to judge, FEVER's lines; the label's words are what is to be said.")
    ] = None,
    passages: Annotated[
        Files | None, _files("Passages to search beside the paragraphs, .jsonl or .tsv, either with .gz.")
    ] = None,
    dev: Annotated[
        Files | None,
        _files("Questions with answers to measure with, in place of held-out articles; of the files of --questions."),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TITLE",
            help="Article that is not trained on but measured with; again for more. Default: four of SQuAD's.",
        ),
    ] = None,
    dev_questions: Annotated[
        int,
        typer.Option(min=1, help="Questions of --dev, or to held-out articles, that are measured with."),
    ] = 160,
    worlds: Annotated[
        int | None,
        typer.Option(
            min=0, help="Invented worlds to learn to read from; 0: none. Default: 4, and none without --paragraphs."
        ),
    ] = None,
    closed_book: Annotated[
        bool,
        typer.Option(
            "--closed-book",
            help="Learn to answer without any passage, as the paper's BART: reading alone, of what is asked.",
        ),
    ] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="What to begin with: a BERT or RoBERTa, a BART or T5, or a RAG checkpoint. Default: all-MiniLM-L6-v2.",
        ),
    ] = None,
    decoder_layer: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Layer of the BERT that a layer of the decoder begins as; again for more. Default: 1, 3, 5 and so on.",
        ),
    ] = None,
    freeze: Annotated[list[Part] | None, typer.Option(help="Leave this part as it is; again for more.")] = None,
    train_embeddings: Annotated[
        bool,
        typer.Option("--train-embeddings", help="Train the word embeddings too; they are stored then."),
    ] = False,
    name: Annotated[str | None, typer.Option(help="What answers call the checkpoint. Default: OUTPUT's name.")] = None,
    seed: Annotated[int, typer.Option(help="Everything that is drawn follows from it.")] = 0,
    reading_steps: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of reading. Default: 2400, and 0 without --paragraphs; 0: left out."),
    ] = None,
    joint_steps: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of joint training. Default: 320, and 0 of a closed book; 0: left out."),
    ] = None,
    unfound: Annotated[
        bool,
        typer.Option(
            "--unfound",
            help="Learn from a question though no passage that it found holds an answer, as the paper does.",
        ),
    ] = False,
    loss: Annotated[
        Loss,
        typer.Option(help="Marginal of joint training: RAG-Token's, RAG-Sequence's, half of each."),
    ] = "both",
    n_docs: Annotated[
        int | None, typer.Option(min=1, help="Passages a question finds in joint training. Default: 5.")
    ] = None,
    patience: Annotated[
        int,
        typer.Option(
            min=0,
            help="End a stage after so many evaluations without improvement, and keep its best state; 0: never.",
        ),
    ] = 0,
    evaluate_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between evaluations. Default: 600, and 80 in joint training.")
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="STAGE.NAME=VALUE",
            help="Any other number of the recipe, such as joint.question_rate=1e-5; a wrong name lists the right ones.",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the run log, the curves and the states to go on from. Default: runs/NAME-SEED.",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(min=1, help="Processes that train together: one thread or one GPU each."),
    ] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda; auto: a GPU if there is one.")] = "auto",
    dtype: Annotated[
        Dtype,
        typer.Option(help="Precision of the weights; auto: bfloat16 where the hardware has it."),
    ] = "auto",
    accumulate: Annotated[
        int,
        typer.Option(
            min=1,
            help="Parts that a step is worked through in: the same result in less memory.",
        ),
    ] = 1,
) -> None:
    """Train a checkpoint: reading, then the question encoder, then both by the marginal (section 2.4 of the paper).

    Question files are JSON lines of {"question", "answers", "title", "context"}, SQuAD's JSON or NQ-open's lines, also
    with gzip; what a file is, its content says. Nothing is downloaded. What a stage has made stays in --work: the same
    command goes on from there, after a kill too, and ends with the same weights.
    """
    from openbook_lab.training.recipe import WRITTEN_TOKENS, with_numbers
    from openbook_lab.training.run import TrainingConfig, run

    if not (paragraphs or questions or texts or claims or (closed_book and sentences)):
        raise SettingInvalid(
            setting="--paragraphs", reason="nothing to train on: name --paragraphs, --questions, --texts or --claims"
        )
    quieten_libraries()
    called = name or output.resolve().name
    parts = [part.value for part in freeze or ()]
    frozen = tuple(parts) if train_embeddings else ("word-embeddings", *parts)
    recipe = TrainingConfig(
        output=output,
        work=work or Path("runs") / f"{called}-{seed}",
        paragraphs=tuple(paragraphs or ()),
        sentences=tuple(sentences or ()),
        unanswerable=tuple(unanswerable or ()),
        questions=tuple(questions or ()),
        texts=tuple(texts or ()),
        claims=tuple(claims or ()),
        dev=tuple(dev or ()),
        unfound=unfound,
        passages=tuple(passages or ()),
        closed_book=closed_book,
        base=base,
        decoder_layers=tuple(decoder_layer or ()),
        held_out=tuple(held_out or ()),
        dev_questions=dev_questions,
        worlds=worlds if worlds is not None else WORLDS if paragraphs and not closed_book else 0,
        name=called,
        processes=processes,
        device=device,
        dtype=dtype,
        seed=seed,
    )
    both: dict[str, Any] = {"accumulate": accumulate, "patience": patience, "freeze": frozen}
    if evaluate_every is not None:
        both["evaluate_every"] = evaluate_every
    if texts:
        both["max_target_length"] = WRITTEN_TOKENS
    reads = paragraphs or closed_book
    recipe = replace(
        recipe,
        reading=replace(recipe.reading, **both, steps=_or_default(reading_steps, recipe.reading.steps if reads else 0)),
        joint=replace(
            recipe.joint,
            **both,
            steps=_or_default(joint_steps, 0 if closed_book else recipe.joint.steps),
            loss=loss,
            n_docs=n_docs or recipe.joint.n_docs,
        ),
    )
    recipe = with_numbers(recipe, number or ())
    console = messages()
    with ProgressBar(stopped=f"stopped; the same command goes on from the last state in {recipe.work}") as left:
        run(recipe, lambda line: console.print(line, markup=False, soft_wrap=True), left.update)


def _or_default(given: int | None, default: int) -> int:
    return default if given is None else given


def average(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Where to write it: a new folder.")],
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Checkpoints of one shape; one given twice counts twice.")
    ],
    name: Annotated[str | None, typer.Option(help="What answers call it. Default: OUTPUT's name.")] = None,
) -> None:
    """Write the checkpoint whose weights are the mean of others': ends of trainings with a common beginning."""
    if len(folders) < 2:
        raise SettingInvalid(setting="FOLDER", reason="a mean needs two checkpoints at least")

    from openbook_lab.training.averaging import average_checkpoints

    average_checkpoints(output, folders, name=name or output.resolve().name)
    messages().print(f"wrote the mean of {len(folders)} checkpoints to {output}", markup=False)
