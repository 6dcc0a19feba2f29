"""The text before an edit and after it, as two versions in a folder of their own: nothing that is served is touched."""

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openbook.errors import SettingInvalid, UnknownIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import link_files, making, put_in_place

if TYPE_CHECKING:
    from openbook.indexing.building.progress import Progress
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.indexing.updating.plan import UpdatePlan

# A version of the folder of indexes keeps its own name.
BEFORE, AFTER = "revision", "edited"


@dataclass(frozen=True, slots=True)
class Edit:
    """Two versions in `store`, `before` and AFTER; where the text is the same, `plan` is None and AFTER is missing."""

    store: IndexStore
    before: str
    plan: "UpdatePlan | None"


@contextmanager
def edit_of(
    folder: Path, store: IndexStore, against: str | None, encoder: "PassageEncoder", report: "Progress"
) -> Iterator[Edit]:
    """The text of `folder` beside what it is compared with, for as long as the block lasts.

    `against` is a version of `store`, by default its CURRENT, or a revision of the git repository that holds the
    folder. Only text that the first lacks is embedded. Raises SettingInvalid for what is neither, and what building
    raises.
    """
    from openbook.indexing.index_builder import BuildOptions
    from openbook.indexing.sources import open_source
    from openbook.indexing.updating.update import Changes, update_index

    with tempfile.TemporaryDirectory(prefix="openbook-check-") as place:
        work = IndexStore(Path(place) / "indexes")
        work.folder.mkdir()
        before = _before(folder, store, against, encoder, work, report)
        seen: list[UpdatePlan] = []

        def changes_something(plan: "UpdatePlan") -> bool:
            seen.append(plan)
            return plan.changes_something

        changes = Changes(open_source(str(folder)), mirror=True)
        options = BuildOptions(index="")
        made = update_index(work, before, AFTER, encoder, changes, options, wanted=changes_something, report=report)
        yield Edit(work, before, seen[0] if made is not None else None)


def _before(
    folder: Path,
    store: IndexStore,
    against: str | None,
    encoder: "PassageEncoder",
    work: IndexStore,
    report: "Progress",
) -> str:
    """The name of the version that the edit is compared with."""
    version = against if against is not None else store.current()
    if version is not None and version in store.versions():
        info = store.info(version)
        with making(work, version) as place:
            link_files(store, info, info.files, place)
            put_in_place(work, place, info)
        return version
    if version is None:
        reason = "is needed where --indexes has no CURRENT: a version or a git revision"
        raise SettingInvalid(setting="--against", reason=reason)
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{version}^{{commit}}")
    if commit is None:
        raise UnknownIndex(version=version, available=store.versions())

    from openbook.indexing.index_builder import BuildOptions, build_index
    from openbook.indexing.sources import open_source

    text = work.folder.parent / "text"
    _extract(folder, commit, text)
    build_index(work, BEFORE, open_source(str(text)), encoder, BuildOptions(index="auto", bm25=True), report=report)
    return BEFORE


def _extract(folder: Path, commit: str, target: Path) -> None:
    archive = target.with_suffix(".tar")
    # of the repository, git packs the folder that it runs in
    if _git(folder, "archive", "--format=tar", f"--output={archive}", commit) is None:
        reason = f"the revision {commit[:12]} does not hold {folder}"
        raise SettingInvalid(setting="--against", reason=reason)
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    archive.unlink()


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails, or is not there."""
    try:
        ended = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None
