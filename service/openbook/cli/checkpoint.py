"""openbook checkpoint show, export"""

from pathlib import Path
from typing import Annotated

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages, say
from openbook.cli.options import argument, with_options
from openbook.errors import SettingInvalid
from openbook.settings import Settings


@with_options
def show(settings: Annotated[Settings, "checkpoint"]) -> None:
    """Say what a checkpoint is made of."""
    from openbook.rag.description import describe

    quieten_libraries()
    for name, value in describe(settings.checkpoint).items():
        say(f"{name:<16}  {value}")


@with_options
def export(
    settings: Annotated[Settings, "checkpoint"],
    folder: Path = argument("FOLDER", "Where to write it: a new or empty folder."),
) -> None:
    """Write the checkpoint as a complete folder, which transformers' own RAG classes load.

    A folder such as openbook-mini-bart's leaves out weights that it took unchanged from a package; the export has them.
    """
    check_new(folder)

    from openbook.rag.checkpoint import load_checkpoint, save_checkpoint

    quieten_libraries()
    with messages().status(f"loading {settings.checkpoint}"):
        checkpoint = load_checkpoint(settings.checkpoint)
    with messages().status(f"writing {folder}"):
        save_checkpoint(checkpoint, folder)
    say(f"wrote {checkpoint.name} to {folder}")


def check_new(folder: Path) -> None:
    """Raise SettingInvalid for a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingInvalid(setting="FOLDER", reason=f"{folder} is there already and is not empty")
