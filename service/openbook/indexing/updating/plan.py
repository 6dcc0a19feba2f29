"""What an update will do: which passages of the base stay, and which come behind them."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.indexing.bm25_build import in_order
from openbook.indexing.building.progress import Report
from openbook.indexing.sources import PassageSource
from openbook.indexing.unique_ids import UniqueIds
from openbook.indexing.updating.contents import Contents, Digests, DigestTable, as_digests, digest
from openbook.indexing.updating.difference import Difference
from openbook.storage.snapshot import IndexSnapshot


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Rows of the base that are `kept` (N,), then of the passages of the changes those that are `taken` (M,).

    `texts` finds the base's vector of a text. `wholes` (M,) are digests of the changes: they must not change between
    two readings. `n_left` passages stay that the changes lack. `skipped` counts by reason what the changes left out,
    `embedded` the texts that the base lacks. `stamp` is another one for another base or other changes.
    """

    kept: NDArray[np.bool_]
    taken: NDArray[np.bool_]
    texts: DigestTable
    wholes: Digests
    n_added: int
    n_reworded: int
    n_relabelled: int
    n_removed: int
    n_left: int
    n_embedded: int
    stamp: str
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def n_changed(self) -> int:
        return self.n_reworded + self.n_relabelled

    @property
    def n_passages(self) -> int:
        return int(self.kept.sum() + self.taken.sum())

    @property
    def changes_something(self) -> bool:
        return bool(self.n_added or self.n_changed or self.n_removed)


def plan_update(
    base: IndexSnapshot,
    changes: PassageSource | None,
    *,
    deleted: Collection[str] = (),
    mirror: bool = False,
    report: Report,
) -> UpdatePlan:
    """Compare `changes` with the base. What they bring under a known id replaces it; a new id is added.

    The passages of `deleted` go; with `mirror` every passage goes whose id the changes lack. Raises SourceInvalid for
    an id to delete that the base lacks, for one that the changes have too, and for an id that they have twice.
    """
    before = contents_of(base, report)
    after = _contents_of_changes(changes, report)
    difference = Difference.between(before, after)
    taken = difference.added | difference.changed  # (M,)
    kept = np.ones(len(before), dtype=np.bool_)  # (N,)
    kept[difference.rows[difference.changed]] = False
    if mirror:
        kept &= ~difference.removed
    rows = _rows_to_delete(base, before, after, deleted)
    kept[rows] = False
    if not (kept.any() or taken.any()):
        raise SourceInvalid(source=base.info.version, reason="the update leaves no passage to index")
    n_changed = int(difference.changed.sum())
    texts = DigestTable(before.texts)
    stamp = digest(after.wholes.tobytes(), sorted(deleted), mirror).hex()
    return UpdatePlan(
        kept=kept,
        taken=taken,
        texts=texts,
        wholes=after.wholes,
        n_added=int(difference.added.sum()),
        n_reworded=int(difference.reworded.sum()),
        n_relabelled=int(difference.relabelled.sum()),
        n_removed=int((~kept).sum()) - n_changed,
        n_left=int((kept & difference.removed).sum()),
        n_embedded=int((texts.rows(after.texts[taken]) < 0).sum()),
        stamp=stamp,
        skipped=dict(changes.skipped()) if changes is not None else {},
    )


def contents_of(snapshot: IndexSnapshot, report: Report) -> Contents:
    """The digests of a version's passages."""
    total = len(snapshot)

    def told(done: int) -> None:
        report(done, total, snapshot.info.version)

    contents = Contents.of(in_order(snapshot.passages, total), told)
    told(total)
    return contents


def _contents_of_changes(changes: PassageSource | None, report: Report) -> Contents:
    if changes is None:
        return Contents.of(())
    ids = UniqueIds(changes.name)

    def told(done: int) -> None:
        report(done, None, "changes")

    contents = Contents.of(ids.over(changes.passages()), told)
    ids.check(changes.passages)
    report(len(contents), len(contents), "changes")
    return contents


def _rows_to_delete(
    base: IndexSnapshot, before: Contents, after: Contents, deleted: Collection[str]
) -> NDArray[np.int64]:
    """The base's rows of these ids: (D,)."""
    named = list(dict.fromkeys(deleted))
    wanted = as_digests(b"".join(map(digest, named)))
    rows = DigestTable(before.ids).rows(wanted)
    unknown = np.flatnonzero(rows < 0)
    if unknown.size:
        raise SourceInvalid(
            "passage",
            source="--delete",
            version=base.info.version,
            passage_id=named[unknown[0]],
            n_unknown=len(unknown),
        )
    twice = np.flatnonzero(DigestTable(after.ids).rows(wanted) >= 0)
    if twice.size:
        raise SourceInvalid(source="--delete", reason=f"passage {named[twice[0]]!r} is also among the changes")
    return rows
