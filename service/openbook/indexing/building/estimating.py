"""What a build will take, before it begins."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from openbook.errors import IndexTooLarge
from openbook.indexing.bm25_build import estimated_bytes
from openbook.indexing.building.shards import text_bytes
from openbook.indexing.index_spec import IndexEstimate, IndexSpec, choose_index, estimate
from openbook.indexing.sources import PassageSource

SAMPLE_PASSAGES = 4096
# Kept free: a disk that is full to the last byte stops every other program.
SPARE_BYTES = 64 << 20
# Memory of a process that has loaded torch and computes small batches, without the weights.
PROCESS_BYTES = 600_000_000


@dataclass(frozen=True, slots=True)
class SourceSize:
    """How much text there is. `exact`: all of it was read; otherwise it is worked out from a sample."""

    n_passages: int
    text_bytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """The estimate and its basis. `memory_bytes` is for building, not for serving."""

    size: SourceSize | None
    spec: IndexSpec | None
    index: IndexEstimate | None
    memory_bytes: int
    free_bytes: int


def measure_source(source: PassageSource, sample: int = SAMPLE_PASSAGES) -> SourceSize | None:
    """Read up to `sample` passages. None for a longer source that does not know its size."""
    n_passages = n_bytes = read = 0
    for batch in source.batches():
        n_passages += len(batch.passages)
        n_bytes += text_bytes(batch.passages)
        read = batch.read
        if n_passages >= sample:
            break
    else:
        return SourceSize(n_passages, n_bytes, exact=True)
    if not source.total_bytes or not read:
        return None
    share = source.total_bytes / read
    return SourceSize(round(n_passages * share), round(n_bytes * share), exact=False)


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_disk(folder: Path) -> int:
    """Free bytes of the disk on which `folder` is or will be."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    return shutil.disk_usage(there).free


def estimate_build(
    size: SourceSize | None,
    folder: Path,
    *,
    index: str,
    dimension: int,
    n_workers: int,
    weights_bytes: int,
    bm25: bool = False,
    **numbers: int | None,
) -> BuildEstimate:
    """`index` and `numbers` are those of choose_index, which may raise SettingInvalid; `bm25` counts its files."""
    spec = sizes = None
    scoring_bytes = estimated_bytes(size.text_bytes)[1] if bm25 and size is not None else 0
    if size is not None and size.n_passages:
        spec = choose_index(
            index, n_passages=size.n_passages, dimension=dimension, memory_bytes=machine_memory(), **numbers
        )
        sizes = estimate(spec, n_passages=size.n_passages, dimension=dimension, text_bytes=size.text_bytes, bm25=bm25)
    # FAISS holds the index that it fills, and BM25, after it, all words; each worker holds the model
    held_bytes = max(sizes.index_bytes if sizes else 0, scoring_bytes)
    memory = max(n_workers * (weights_bytes + PROCESS_BYTES), PROCESS_BYTES + held_bytes)
    return BuildEstimate(size, spec, sizes, memory, free_disk(folder))


def check_disk(version: str, folder: Path, needed: int, there: int = 0) -> None:
    """Raise IndexTooLarge if `needed` bytes, of which `there` are written already, do not fit."""
    free = free_disk(folder)
    if needed - there + SPARE_BYTES > free:
        raise IndexTooLarge("disk", version=version, needed=max(0, needed - there), folder=folder, free=free)
