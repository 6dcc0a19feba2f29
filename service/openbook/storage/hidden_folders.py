"""The names of the hidden folders beside the versions; `indexing.workplace` makes and removes them.

`.building-<version>-<random>` holds a version that is being written. `.replaced-<version>-<random>` is a version on
its way out, and only there where two folders cannot exchange their names in one step. `.deleted-<version>-<random>`
is one that is being removed.
"""

import re
from pathlib import Path

from openbook.storage.manifest import MANIFEST

HIDDEN = re.compile(r"\.(?P<kind>building|replaced|deleted)-(?P<version>.+)-[0-9a-f]{8}")


def hidden(folder: Path, version: str | None, kind: str) -> list[Path]:
    """Hidden folders of a kind, of one version or of all."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = HIDDEN.fullmatch(path.name)
        if match and match["kind"] == kind and version in (None, match["version"]) and not path.is_symlink():
            found.append(path)
    return found


def replaced(folder: Path, version: str) -> Path | None:
    """The version that was on its way out when its publisher died between two renames: complete, so still good."""
    return next((path for path in hidden(folder, version, "replaced") if (path / MANIFEST).is_file()), None)


def version_of(hidden_folder: Path) -> str:
    match = HIDDEN.fullmatch(hidden_folder.name)
    return match["version"] if match else ""
