"""Where the work on versions that are not there yet lies."""

from pathlib import Path


def work_place(folder: Path, version: str) -> Path:
    """Where the work on a version lies."""
    return folder / f".work-{version}"


def unfinished(folder: Path) -> tuple[str, ...]:
    """Versions whose build has begun and not ended."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(path.name.removeprefix(".work-") for path in folder.glob(".work-*") if path.is_dir()))
