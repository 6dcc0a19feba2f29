"""openbook checkpoint export | average"""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.client import quieten_libraries
from service.cli.consoles import messages
from service.cli.options import takes_settings
from service.errors import SettingInvalid
from service.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Checkpoints: Hugging Face RAG folders.")


@app.command()
@takes_settings("checkpoint")
def export(
    settings: Settings,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it: a new or empty folder.")],
) -> None:
    """Write the checkpoint as a folder that is complete by itself and that transformers' own RAG classes load.

    A folder such as openbook-mini's leaves out weights that it took unchanged from a package; the export holds all.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingInvalid(setting="FOLDER", reason=f"{folder} is there already and is not empty")

    from service.rag.checkpoint import load_checkpoint, save_checkpoint

    quieten_libraries()
    console = messages()
    with console.status(f"loading {settings.checkpoint}"):
        checkpoint = load_checkpoint(settings.checkpoint)
    with console.status(f"writing {folder}"):
        save_checkpoint(checkpoint, folder)
    console.print(f"wrote {checkpoint.name} to {folder}", markup=False)


@app.command()
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

    from service.offline.training.averaging import average_checkpoints

    average_checkpoints(output, folders, name=name or output.resolve().name)
    messages().print(f"wrote the mean of {len(folders)} checkpoints to {output}", markup=False)
