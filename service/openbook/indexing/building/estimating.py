"""What a build will take, before it begins."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from openbook.errors import DiskTooSmall
from openbook.indexing.bm25_build import estimated_bytes
from openbook.indexing.index_spec import IndexEstimate, IndexSpec, choose_index, estimate
from openbook.indexing.sources import PassageSource

SAMPLE_PASSAGES = 4096
# Left free beside everything: a disk that is filled to the last byte serves nobody.
SPARE_BYTES = 64 << 20
# What a process takes that has loaded torch and computes small batches, beside the weights.
PROCESS_BYTES = 600_000_000


@dataclass(frozen=True, slots=True)
class SourceSize:
    """How much text there is. `exact`: all of it was read; otherwise by the bytes that a sample took."""

    n_passages: int
    text_bytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """What was estimated from what; bytes of memory are those of building, not of serving."""

    size: SourceSize | None
    spec: IndexSpec | None
    index: IndexEstimate | None
    memory_bytes: int
    free_bytes: int


def measure_source(source: PassageSource, sample: int = SAMPLE_PASSAGES) -> SourceSize | None:
    """Read up to `sample` passages. None where nobody can say how much is behind them."""
    n_passages = text_bytes = read = 0
    for batch in source.batches():
        n_passages += len(batch.passages)
        text_bytes += sum(len(f"{one.passage_id}{one.title}{one.text}".encode()) for one in batch.passages)
        read = batch.read
        if n_passages >= sample:
            break
    else:
        return SourceSize(n_passages, text_bytes, exact=True)
    if not source.total_bytes or not read:
        return None
    share = source.total_bytes / read
    return SourceSize(round(n_passages * share), round(text_bytes * share), exact=False)


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_disk(folder: Path) -> int:
    """Bytes that may still be written where `folder` is or will be."""
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
    """`index` and `numbers` are those of choose_index; `bm25` counts its files. Raises SettingInvalid as that does."""
    spec = sizes = None
    scoring_bytes = estimated_bytes(size.text_bytes)[1] if bm25 and size is not None else 0
    if size is not None and size.n_passages:
        spec = choose_index(
            index, n_passages=size.n_passages, dimension=dimension, memory_bytes=machine_memory(), **numbers
        )
        sizes = estimate(spec, n_passages=size.n_passages, dimension=dimension, text_bytes=size.text_bytes, bm25=bm25)
    # FAISS holds what it fills, and BM25, after it, all words; a worker holds the model
    held_bytes = max(sizes.index_bytes if sizes else 0, scoring_bytes)
    memory = max(n_workers * (weights_bytes + PROCESS_BYTES), PROCESS_BYTES + held_bytes)
    return BuildEstimate(size, spec, sizes, memory, free_disk(folder))


def check_disk(version: str, folder: Path, needed: int, there: int = 0) -> None:
    """Raise DiskTooSmall where `needed` bytes, of which `there` are written already, do not fit."""
    free = free_disk(folder)
    if needed - there + SPARE_BYTES > free:
        raise DiskTooSmall(version=version, needed=max(0, needed - there), folder=folder, free=free)
