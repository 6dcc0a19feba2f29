"""openbook checkpoint export"""

from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages
from openbook.cli.options import takes_settings
from openbook.errors import SettingInvalid
from openbook.settings import Settings


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

    from openbook.rag.checkpoint import load_checkpoint, save_checkpoint

    quieten_libraries()
    console = messages()
    with console.status(f"loading {settings.checkpoint}"):
        checkpoint = load_checkpoint(settings.checkpoint)
    with console.status(f"writing {folder}"):
        save_checkpoint(checkpoint, folder)
    console.print(f"wrote {checkpoint.name} to {folder}", markup=False)


def build() -> typer.Typer:
    """The group of commands; `average` comes from the lab."""
    group = typer.Typer(no_args_is_help=True, help="Checkpoints: Hugging Face RAG folders.")
    group.command()(export)
    # with a second command or without: a group stays a group
    group.callback()(lambda: None)
    return group
