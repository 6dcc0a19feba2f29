"""openbook train, openbook checkpoint average"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages, say
from openbook.cli.options import argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook_lab.training.recipe import (
    GENERATOR,
    READER_READING,
    WORD_EMBEDDINGS,
    WRITTEN_TOKENS,
    Loss,
    TrainingConfig,
    TrainingInputs,
    with_numbers,
)


@with_options
def train(
    inputs: TrainingInputs,
    output: Path = argument("OUTPUT", "Folder of the checkpoint to write; a new one."),
    worlds: int | None = option(
        None, "Invented worlds to learn to read from; 0: none. Default: 4, and none without --paragraphs.", min=0
    ),
    freeze: tuple[Literal["question-encoder", "generator", "generator-encoder", "generator-decoder"], ...] = option(
        (), "Leave this part as it is; again for more. generator: both of its parts."
    ),
    train_embeddings: bool = option(False, "Train the word embeddings too; they are stored then."),
    name: str | None = option(None, "What answers call the checkpoint. Default: OUTPUT's name."),
    reading_steps: int | None = option(
        None, "Steps of reading. Default: 2400, and 0 without --paragraphs; 0: left out.", min=0
    ),
    retrieval_steps: int = option(
        0, "Steps in which the question encoder learns to find, from passages that mislead it. 0: left out.", min=0
    ),
    joint_steps: int | None = option(
        None, "Steps of joint training. Default: 320, and 0 of a closed book; 0: left out.", min=0
    ),
    loss: Loss = option("both", "Marginal of joint training: RAG-Token's, RAG-Sequence's, half of each."),
    n_docs: int | None = option(None, "Passages a question finds in joint training. Default: 5.", min=1),
    evaluate_every: int | None = option(
        None, "Steps between evaluations. Default: 600, and 80 in joint training, 100 in retrieval.", min=1
    ),
    patience: int = option(
        0, "End a stage after so many evaluations without improvement, and keep its best state; 0: never.", min=0
    ),
    accumulate: int | None = option(
        None, "Parts of a step, one after the other: the same in less memory. Default: 1, 2 in retrieval.", min=1
    ),
    number: tuple[str, ...] = option(
        (),
        "Any other number of the recipe, such as joint.question_rate=1e-5; a wrong name lists the right ones.",
        "--set",
        metavar="STAGE.NAME=VALUE",
    ),
    work: Path | None = option(
        None, "Folder of the run log and the states to go on from. Default: runs/NAME-SEED.", metavar="FOLDER"
    ),
) -> None:
    """Train a checkpoint: reading, then the question encoder, then both by the marginal (section 2.4 of the paper).

    Question files are JSON lines of {"question", "answers", "title", "context"}, SQuAD's JSON or NQ-open's lines, also
    with gzip; the content of a file says which it is. Nothing is downloaded. The result of a stage stays in --work: the
    same command goes on from there, after a kill too, and ends with the same weights.
    """
    from openbook_lab.training.run import is_reader, run

    reads = bool(inputs.paragraphs) or inputs.closed_book
    written = inputs.closed_book and inputs.sentences
    if not (inputs.paragraphs or written or inputs.questions or inputs.feedback or inputs.texts or inputs.claims):
        raise SettingInvalid(
            setting="--paragraphs",
            reason="nothing to train on: name --paragraphs, --questions, --feedback, --texts or --claims",
        )
    quieten_libraries()
    called = name or output.resolve().name
    work = work or Path("runs") / f"{called}-{inputs.seed}"
    recipe = TrainingConfig(output=output, work=work, name=called, **asdict(inputs))
    points = is_reader(recipe)
    if worlds is None:
        worlds = recipe.worlds if inputs.paragraphs and not (inputs.closed_book or points) else 0
    frozen = {*freeze, *(GENERATOR if "generator" in freeze else ())} - {"generator"}
    has_frozen_generator = frozen >= GENERATOR
    if reading_steps is None:
        reading_steps = recipe.reading.steps if reads and not has_frozen_generator else 0
    if joint_steps is None:
        joint_steps = 0 if inputs.closed_book or points else recipe.joint.steps
    stage: dict[str, Any] = {
        "patience": patience,
        "freeze": (*(() if train_embeddings else (WORD_EMBEDDINGS,)), *sorted(frozen)),
    }
    given = {"evaluate_every": evaluate_every, "accumulate": accumulate}
    stage |= {name: value for name, value in given.items() if value is not None}
    of_generator = {**stage, **({"max_target_length": WRITTEN_TOKENS} if inputs.texts else {})}
    of_reading = READER_READING if points else {}
    n_docs = n_docs or recipe.joint.n_docs
    recipe = replace(
        recipe,
        worlds=worlds,
        reading=replace(recipe.reading, **{**of_generator, **of_reading, "steps": reading_steps}),
        retrieval=replace(recipe.retrieval, **{**stage, "steps": retrieval_steps}),
        joint=replace(recipe.joint, **{**of_generator, "steps": joint_steps, "loss": loss, "n_docs": n_docs}),
    )
    recipe = with_numbers(recipe, number)
    console = messages()
    with ProgressBar(stopped=f"stopped; the same command continues from the last state in {recipe.work}") as left:
        run(recipe, lambda line: console.print(line, markup=False, soft_wrap=True), left.update)


@with_options
def average(
    output: Path = argument("OUTPUT", "Where to write it: a new folder."),
    folders: tuple[Path, ...] = argument("FOLDER...", "Checkpoints of one shape; one given twice counts twice."),
    name: str | None = option(None, "What answers call it. Default: OUTPUT's name."),
) -> None:
    """Write the checkpoint whose weights are the mean of others': ends of trainings with a common beginning."""
    if len(folders) < 2:
        raise SettingInvalid(setting="FOLDER", reason="a mean needs two checkpoints at least")

    from openbook_lab.training.averaging import average_checkpoints

    average_checkpoints(output, folders, name=name or output.resolve().name)
    say(f"wrote the mean of {len(folders)} checkpoints to {output}")
