"""A new version of a version and what has changed: only text that is new is embedded."""

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from openbook.entities import IndexInfo, Lineage
from openbook.errors import IndexCorrupt, IndexIncompatible, SettingInvalid
from openbook.indexing.building.estimating import SourceSize
from openbook.indexing.building.progress import BuildReport, Progress, Silence
from openbook.indexing.building.work_folder import work_place
from openbook.indexing.faiss_building import Begun
from openbook.indexing.faiss_layout import layout_of
from openbook.indexing.index_builder import BuildOptions, build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import PassageSource
from openbook.indexing.updating.plan import UpdatePlan, plan_update
from openbook.indexing.updating.updated import Reusing, Updated
from openbook.storage import durable
from openbook.storage.faiss_snapshot import FaissSnapshot
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST, PASSAGES_FILE
from openbook.storage.placing import check_free
from openbook.storage.snapshot import IndexSnapshot

# An index that has lost and gained more than this share of its vectors since it was made as a whole is made anew.
LARGEST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes in a version. `source` brings passages, each in place of the one of its id, or beside all others.

    The passages of `deleted` go; with `mirror` all go whose id the source lacks: it is the whole new text.
    """

    source: PassageSource | None = None
    deleted: Collection[str] = ()
    mirror: bool = False

    def __post_init__(self) -> None:
        """Raises SettingInvalid for changes that change nothing, or that say twice what goes."""
        if self.source is None and not self.deleted:
            raise SettingInvalid(setting="--changes", reason="is needed, or --delete with an id")
        if self.mirror and (self.source is None or self.deleted):
            raise SettingInvalid(setting="--mirror", reason="takes everything from --changes and goes without --delete")


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """The build of the version, and what the update had planned."""

    built: BuildReport
    plan: UpdatePlan


def update_index(
    store: IndexStore,
    base: str,
    version: str,
    encoder: PassageEncoder,
    changes: Changes,
    options: BuildOptions | None = None,
    *,
    bm25: bool | None = None,
    wanted: Callable[[UpdatePlan], bool] | None = None,
    report: Progress | None = None,
) -> UpdateReport | None:
    """Publish `base` with `changes` as `version`, a whole version like any other: see `Updated` for its order.

    The index, its numbers and BM25 are those of the base unless `options` (with an index other than "") and `bm25` say
    otherwise. Continues after a kill as `build_index` does. `wanted` sees the plan before anything is written; if it
    says no, nothing is made and None comes back.

    Raises IndexIncompatible for an encoder that did not make the base's vectors, and what `plan_update` and
    `build_index` raise.
    """
    options = options or BuildOptions(index="")
    if version == base:
        raise SettingInvalid(setting="--name", reason=f"an update makes another version; {base!r} is its base")
    if not work_place(store.folder, version).exists():
        check_free(store, version, replace=options.replace)
    with closing(store.open(base)) as snapshot:
        check_encoder(snapshot.info, encoder)
        manifest = durable.sha256_of(store.find(base) / MANIFEST)
        if store.check(base) != snapshot.identity:
            raise IndexCorrupt("file", version=base, file=MANIFEST, reason="it was published again meanwhile")
        told = (report or Silence()).update
        plan = plan_update(snapshot, changes.source, deleted=changes.deleted, mirror=changes.mirror, report=told)
        if wanted is not None and not wanted(plan):
            return None
        begun, relinked = _begun(snapshot, plan, options)
        chosen = _as_the_base(snapshot, options, bm25)
        lineage = Lineage(base, manifest, plan.n_added, plan.n_changed, plan.n_removed, plan.n_embedded, relinked)
        built = build_index(
            store,
            version,
            Updated(snapshot, changes.source, plan),
            encoder,
            replace(
                chosen,
                made_from=(base,),
                stamp=f"base {base} {manifest}, changes {plan.stamp}",
                size=_size(snapshot.info, plan),
                engine=Reusing(snapshot, plan, encoder, options.workers),
                lineage=lineage,
                begun=begun,
            ),
            report=report,
        )
    return UpdateReport(built, plan)


def _begun(base: IndexSnapshot, plan: UpdatePlan, options: BuildOptions) -> tuple[Begun | None, int]:
    """The base's index to add to, and how many vectors are others since it was made; None, and 0, to make it anew.

    FAISS's HNSW deletes nothing: the vectors that go are masked. Of other indexes an empty one is filled which has
    learned what the base's has, since rotation, centres and codewords fit what is like the text that they came from.
    """
    info = base.info
    if not isinstance(base, FaissSnapshot) or options.index or not plan.kept.any():
        return None, 0
    relinked = int(plan.taken.sum() + (~plan.kept).sum()) + (info.lineage.relinked if info.lineage is not None else 0)
    if relinked > LARGEST_SHARE * plan.n_passages:
        return None, 0
    if info.index_type == "hnsw":
        return Begun(base.index, base.masked_but(plan.kept)), relinked
    if not layout_of(info.factory, info.dimension).trains:
        return None, 0

    def learned() -> Any:
        index = base.index()
        index.reset()
        return index

    return Begun(learned), relinked


def check_encoder(base: IndexInfo, encoder: PassageEncoder) -> None:
    """Raise IndexIncompatible unless this encoder made the vectors of the base."""
    if (base.encoder_fingerprint, base.dimension) != (encoder.fingerprint, encoder.dimension):
        raise IndexIncompatible(
            "base",
            version=base.version,
            index_encoder=f"{base.encoder_name} ({base.encoder_fingerprint or 'unknown'})",
            given=f"{encoder.name} ({encoder.fingerprint})",
        )


def _as_the_base(base: IndexSnapshot, options: BuildOptions, bm25: bool | None) -> BuildOptions:
    """The options with the base's index, unless they name one, and with its BM25, unless `bm25` says."""
    info = base.info
    if not options.index and isinstance(base, FaissSnapshot):
        numbers, reason = _numbers(info.search, base.ef_construction), f"{info.version}, its base, has this index"
        options = replace(options, index=info.factory, numbers=numbers, reason=reason)
    elif not options.index:
        # its vectors lie in a database
        options = replace(options, index="auto")
    return replace(options, bm25=info.bm25 is not None if bm25 is None else bm25)


def _numbers(search: Mapping[str, int], ef_construction: int | None) -> dict[str, int | None]:
    names = {"efSearch": "ef_search", "nprobe": "nprobe", "candidates": "candidates"}
    found: dict[str, int | None] = {names[name]: value for name, value in search.items() if name in names}
    return found if ef_construction is None else found | {"ef_construction": ef_construction}


def _size(base: IndexInfo, plan: UpdatePlan) -> SourceSize:
    """The new passages are taken to be as long as those of the base."""
    share = plan.n_passages / base.n_passages
    return SourceSize(plan.n_passages, round(base.files[PASSAGES_FILE].bytes * share), exact=False)
