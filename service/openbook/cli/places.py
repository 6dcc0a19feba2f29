"""Options that name what a command writes. A place that cannot be written to is refused before the work, not after."""

import os
from pathlib import Path

import typer

DRAWN = (".png", ".svg")


def file_to_write(path: Path | None) -> Path | None:
    """The file of an option, whose folder is made where it is missing. Raises BadParameter."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder")
    if not path.exists():
        folder_to_fill(path.parent)
    elif not os.access(path, os.W_OK):
        raise typer.BadParameter(f"{path} may not be written")
    return path


def plot_to_write(path: Path | None) -> Path | None:
    """As file_to_write, for a picture whose kind its ending says."""
    if path is not None and path.suffix.lower() not in DRAWN:
        raise typer.BadParameter(f"{path} ends in neither {' nor '.join(DRAWN)}")
    return file_to_write(path)


def folder_to_fill(path: Path | None) -> Path | None:
    """The folder of an option, made where it is missing. Raises BadParameter."""
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"the folder {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing may be written in {path}")
    return path
