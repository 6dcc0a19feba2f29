"""openbook index: update, diff"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from openbook.cli.consoles import output, print_json, printable, say
from openbook.cli.index_build import Attempt, Embedding, load_encoder, show_report, stopped
from openbook.cli.options import REQUIRED, argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import SourceInvalid
from openbook.settings import Settings
from openbook.storage.opening import folder_of
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.vectors import slices

if TYPE_CHECKING:
    from openbook.indexing.updating.plan import UpdatePlan


@dataclass(frozen=True, slots=True)
class UpdatedVersion(Attempt):
    """How an updated version is made."""

    index: str = option("", "Index type, as for openbook index build. Default: the base's.")


@with_options
def update(
    settings: Annotated[Settings, "indexes", "device"],
    embedding: Embedding,
    made: UpdatedVersion,
    base: str = argument("BASE", "The version that changes. It stays as it is."),
    name: str = option(REQUIRED, "Name of the new version."),
    changes: str | None = option(
        None,
        "Passages that are new or have changed: a file or a folder, as index build reads them. A known id replaces "
        "its passage.",
        metavar="FILE|DIR",
    ),
    mirror: bool = option(
        False,
        "Remove passages whose id is not in --changes, which is then the whole text. Needed when "
        "files of a folder shrink.",
    ),
    delete: Path | None = option(None, "Remove the passages whose ids this file lists, one per line.", metavar="FILE"),
    bm25: bool | None = option(None, "Add BM25. Default: as the base.", "--bm25/--no-bm25"),
    date: str | None = option(None, "Date of the text. Default: the date of --changes, else the base's."),
    licence: str = option("", "Licence of the text of --changes, beside the base's."),
) -> None:
    """Make a version of another one and of what has changed. Embeds only text that the base lacks.

    The new version is a whole one, as if it had been built from its passages: first those that stay, in the base's
    order, then what was changed or added. It takes the vector of each text that it knows, also where a passage only
    has another id, address or date. You may stop it and start it again, like index build.
    """
    store = folder_of(settings, "openbook index update")
    made.check_free(store, name)

    from openbook.indexing.sources import open_source
    from openbook.indexing.updating.update import Changes, update_index

    changed = Changes(
        open_source(changes, snapshot_date=date, licence=licence) if changes is not None else None,
        read_ids(delete) if delete is not None else (),
        mirror=mirror,
    )
    options = replace(made.options(made.index), workers=embedding.workers)
    encoder = load_encoder(settings, embedding)
    with ProgressBar(stopped=stopped(name)) as progress:
        updated = update_index(
            store, base, name, encoder, changed, options, bm25=bm25, wanted=show_plan, report=progress
        )
    if updated is not None:
        show_report(store, updated.built, embedded=False)
        if changes is not None and Path(changes).is_dir() and updated.plan.n_left:
            kept = f"The update keeps {updated.plan.n_left:,} of {base}'s passages that {changes} lacks"
            say(f"{kept} (of a deleted file, for example); --mirror removes such passages.")


def show_plan(plan: "UpdatePlan") -> bool:
    """Say what the update does; it goes on."""
    say(
        f"{plan.n_passages:,} passages: {plan.n_added:,} added, {plan.n_changed:,} changed ({plan.n_reworded:,} of "
        f"them in heading or text), {plan.n_removed:,} removed; {plan.n_embedded:,} to embed"
    )
    if plan.skipped:
        say(f"left out of --changes: {', '.join(f'{count:,} {why}' for why, count in sorted(plan.skipped.items()))}")
    return True


def read_ids(path: Path) -> tuple[str, ...]:
    """The ids of a file, one a line. Raises SourceInvalid for a file that is not UTF-8 or holds none."""
    try:
        ids = tuple(line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise SourceInvalid(source=str(path), reason=f"cannot be read ({error})") from error
    if not ids:
        raise SourceInvalid(source=str(path), reason="there is no id in it")
    return tuple(line.removesuffix("\r") for line in ids)


@with_options
def diff(
    settings: Annotated[Settings, "indexes"],
    before: str = argument("A", "A version."),
    after: str = argument("B", "Another one."),
    ids: bool = option(False, "Print the id of every passage that differs, one per line."),
    as_json: bool = option(False, "Print JSON, with the ids.", "--json"),
) -> None:
    """Show which passages B adds to A, changes in it and lacks."""
    from openbook.indexing.updating.difference import Difference
    from openbook.indexing.updating.plan import contents_of

    store = folder_of(settings, "openbook index diff")
    with closing(store.open(before)) as first, closing(store.open(after)) as second:
        with ProgressBar() as progress:
            found = Difference.between(contents_of(first, progress.update), contents_of(second, progress.update))
        masks = {
            "added": (second, found.added),
            "text": (second, found.reworded),
            "fields": (second, found.relabelled),
            "removed": (first, found.removed),
        }
        counts = {what: int(mask.sum()) for what, (_, mask) in masks.items()}
        listed = {what: _ids(*where) for what, where in masks.items()} if ids or as_json else {}
    if as_json:
        print_json({"before": before, "after": after, **listed})
        return
    for what, several in listed.items():
        for passage_id in several:
            typer.echo(f"{what}\t{printable(passage_id)}")
    if not ids:
        output().print(
            f"{after} has {counts['added']:,} passages that {before} lacks, {counts['text']:,} with another heading "
            f"or text, {counts['fields']:,} with other fields, and lacks {counts['removed']:,}",
            markup=False,
        )


def _ids(snapshot: IndexSnapshot, mask: NDArray[np.bool_]) -> list[str]:
    rows: Sequence[int] = np.flatnonzero(mask).tolist()
    return [one.passage_id for part in slices(len(rows), 1024) for one in snapshot.passages(rows[part])]
