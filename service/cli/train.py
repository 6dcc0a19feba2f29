"""openbook train"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from service.cli.client import quieten_libraries
from service.cli.consoles import messages

Files = list[Path]


def train(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Folder of the checkpoint to write.")],
    paragraphs: Annotated[
        Files,
        typer.Option(
            metavar="FILE", help="Questions over paragraphs, such as SQuAD's, as JSON lines; give it again for more."
        ),
    ],
    sentences: Annotated[
        Files | None, typer.Option(metavar="FILE", help="Questions over single sentences, such as QAMR's.")
    ] = None,
    unanswerable: Annotated[
        Files | None,
        typer.Option(metavar="FILE", help="Questions that their paragraph does not answer, such as SQuAD 2.0's."),
    ] = None,
    questions: Annotated[
        Files | None, typer.Option(metavar="FILE", help="Questions alone; passages are found for those with answers.")
    ] = None,
    passages: Annotated[
        Files | None,
        typer.Option(metavar="FILE", help="Passages to search beside the paragraphs, .jsonl or .tsv, either with .gz."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to go on from after an interruption. Default: runs/NAME-SEED."),
    ] = None,
    name: Annotated[str, typer.Option(help="What answers call the checkpoint.")] = "openbook-mini",
    processes: Annotated[int, typer.Option(min=1, help="Processes that train together, each on one thread.")] = 1,
    seed: Annotated[int, typer.Option(help="Everything that is drawn follows from it.")] = 0,
    reading_steps: Annotated[int | None, typer.Option(min=1, help="Steps of reading. Default: the recipe's.")] = None,
    joint_steps: Annotated[int | None, typer.Option(min=1, help="Steps of joint training, likewise.")] = None,
) -> None:
    """Train a checkpoint from question files: reading, then the question encoder, then both (section 2.4).

    A line of a file is {"question", "answers", "title", "context"}. What a stage has made stays in --work, and the
    same command goes on from there. The base is all-MiniLM-L6-v2 from its package; nothing is downloaded.
    """
    from service.offline.training.run import TrainingConfig, run

    quieten_libraries()
    recipe = TrainingConfig(
        output=output,
        work=work or Path("runs") / f"{name}-{seed}",
        paragraphs=tuple(paragraphs),
        sentences=tuple(sentences or ()),
        unanswerable=tuple(unanswerable or ()),
        questions=tuple(questions or ()),
        passages=tuple(passages or ()),
        name=name,
        processes=processes,
        seed=seed,
    )
    recipe = replace(
        recipe,
        reading=replace(recipe.reading, steps=reading_steps or recipe.reading.steps),
        joint=replace(recipe.joint, steps=joint_steps or recipe.joint.steps),
    )
    console = messages()
    run(recipe, lambda line: console.print(line, markup=False, soft_wrap=True))
