"""Whether a version is what its manifest says, and whether a checkpoint can ask it: one error for each defect."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from openbook.entities import IndexInfo
from openbook.errors import (
    DimensionIncompatible,
    IndexChecksumWrong,
    IndexCountWrong,
    IndexDimensionWrong,
    IndexFileMissing,
    IndexFileSizeWrong,
    IndexIncompatible,
    IndexUnreadable,
)
from openbook.storage import durable
from openbook.storage.bm25_index import Bm25Index
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.manifest import INDEX_FILE, MANIFEST, PASSAGES_FILE, VECTORS_FILE, check_sealed, is_lossy
from openbook.storage.passages import PassageFile
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.vectors import VectorFile

Verification = Literal["manifest", "checksum"]


def check_compatible(info: IndexInfo, encoder_fingerprint: str | None, dimension: int | None) -> None:
    """Raise IndexIncompatible where the index was built with another passage encoder than the checkpoint expects."""
    if dimension is not None and dimension != info.dimension:
        raise DimensionIncompatible(version=info.version, index_dimension=info.dimension, encoder_dimension=dimension)
    if encoder_fingerprint is not None and encoder_fingerprint != info.encoder_fingerprint:
        raise IndexIncompatible(
            version=info.version, index_encoder=info.encoder_fingerprint, checkpoint_encoder=encoder_fingerprint
        )


def identity_of(folder: Path, info: IndexInfo) -> Identity:
    """Which files are in `folder`. Raises OSError where one is missing."""
    states = [(folder / name).stat() for name in (MANIFEST, *info.files)]
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def check_files(
    folder: Path,
    info: IndexInfo,
    verify: Verification,
    *,
    report: Callable[[float], None] | None = None,
    in_order: Callable[[str], None] | None = None,
) -> Identity:
    """Compare the files in `folder` with `info` without opening them; "checksum" reads every byte.

    Returns which files they were. `report` is told the share of the bytes that have been read, `in_order` gets a line
    for each file that is. Raises the child of IndexCorrupt that names the first defect.
    """
    size = max(1, sum(file.bytes for file in info.files.values()))
    read = 0

    def count(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        if report is not None:
            report(read / size)

    try:
        if verify == "checksum":
            check_sealed(folder, info.version)
        for name in info.files:
            _check_file(folder / name, info)
        identity = identity_of(folder, info)
        for name in info.files:
            if verify == "checksum" and durable.sha256_of(folder / name, count) != info.files[name].sha256:
                raise IndexChecksumWrong(version=info.version, file=name)
            if in_order is not None:
                in_order(f"{name}: {info.files[name].bytes} bytes, sha256 {info.files[name].sha256}")
    except OSError as error:
        file = Path(error.filename).name if error.filename else MANIFEST
        raise IndexUnreadable(version=info.version, file=file, reason=error.strerror) from error
    return identity


def open_checked(
    folder: Path, info: IndexInfo, verify: Verification, in_order: Callable[[str], None] | None = None
) -> IndexSnapshot:
    """Open the files in `folder` as `info` describes them; "checksum" reads every byte first.

    Raises the child of IndexCorrupt that names the first defect. `in_order` gets a line for each file that is.
    """
    identity = check_files(folder, info, verify, in_order=in_order)
    # An error that is kept, in a log or a swap's outcome, must not keep a mapping.
    with ExitStack() as opened:
        passages = PassageFile.open(folder / PASSAGES_FILE, version=info.version)
        opened.callback(passages.close)
        index = FaissIndex.open(folder / INDEX_FILE, version=info.version, factory=info.factory)
        opened.callback(index.close)
        _check_content(info, index, passages)
        vectors = _open_vectors(folder, info)
        if vectors is not None:
            opened.callback(vectors.close)
        bm25 = _open_bm25(folder, info)
        opened.pop_all()
    return IndexSnapshot(info, index, passages, identity=identity, bm25=bm25, vectors=vectors)


def _open_vectors(folder: Path, info: IndexInfo) -> VectorFile | None:
    if not is_lossy(info.index_type):
        return None
    return VectorFile.open(
        folder / VECTORS_FILE, n_vectors=info.n_passages, dimension=info.dimension, version=info.version
    )


def _open_bm25(folder: Path, info: IndexInfo) -> Bm25Index | None:
    if info.bm25 is None:
        return None
    return Bm25Index.open(folder, info.bm25, n_passages=info.n_passages, version=info.version)


def _check_content(info: IndexInfo, index: FaissIndex, passages: PassageFile) -> None:
    for name, found in ((INDEX_FILE, index.n_vectors), (PASSAGES_FILE, len(passages))):
        if found != info.n_passages:
            raise IndexCountWrong(version=info.version, file=name, found=found, expected=info.n_passages)
    if index.dimension != info.dimension:
        raise IndexDimensionWrong(version=info.version, file=INDEX_FILE, found=index.dimension, expected=info.dimension)
    if index.index_type != info.index_type:
        raise IndexUnreadable(
            version=info.version,
            file=INDEX_FILE,
            reason=f"it is of type {index.index_type} where its manifest says {info.index_type}",
        )


def _check_file(path: Path, info: IndexInfo) -> None:
    if path.is_symlink():
        raise IndexUnreadable(version=info.version, file=path.name, reason="it is a symbolic link")
    if not path.is_file():
        raise IndexFileMissing(version=info.version, file=path.name)
    expected = info.files[path.name].bytes
    found = path.stat().st_size
    if found != expected:
        raise IndexFileSizeWrong(version=info.version, file=path.name, found=found, expected=expected)
