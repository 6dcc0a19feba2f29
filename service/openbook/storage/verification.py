"""Compare a version with its manifest, and with the checkpoint that is to ask it: one error for each defect."""

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import numpy as np

from openbook.entities import IndexInfo
from openbook.errors import (
    IndexCorrupt,
    IndexIncompatible,
)
from openbook.settings import Settings
from openbook.storage import durable
from openbook.storage.bm25_index import Bm25Index
from openbook.storage.durable import FileMark
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.faiss_snapshot import FaissSnapshot
from openbook.storage.manifest import INDEX_FILE, MANIFEST, MASKED_FILE, PASSAGES_FILE, VECTORS_FILE, Manifest, is_lossy
from openbook.storage.passages import PassageFields, PassageFile
from openbook.storage.snapshot import Identity, IndexSnapshot
from openbook.storage.vector_store import vector_store
from openbook.storage.vectors import VectorFile, map_array

FLOAT_BYTES = 4
Verification = Literal["manifest", "checksum"]


def check_compatible(info: IndexInfo, encoder_fingerprint: str | None, dimension: int | None) -> None:
    """Raise IndexIncompatible where the index was built with another passage encoder than the checkpoint expects."""
    if dimension is not None and dimension != info.dimension:
        raise IndexIncompatible(
            "dimension", version=info.version, index_dimension=info.dimension, encoder_dimension=dimension
        )
    if encoder_fingerprint is not None and encoder_fingerprint != info.encoder_fingerprint:
        raise IndexIncompatible(
            version=info.version, index_encoder=info.encoder_fingerprint, checkpoint_encoder=encoder_fingerprint
        )


def check_files(
    manifest: Manifest,
    verify: Verification,
    *,
    report: Callable[[float], None] | None = None,
    in_order: Callable[[str], None] | None = None,
    settings: Settings | None = None,
) -> Identity:
    """Compare the files that a manifest names with what it says, without opening them; "checksum" reads every byte,
    and every vector in a database that `settings` allow.

    Returns which files they are. `report` receives the share of the bytes that have been read, `in_order` a line for
    each file that is in order. Raises IndexCorrupt, which names the first defect.
    """
    info, folder = manifest.info, manifest.folder
    in_database = FLOAT_BYTES * info.n_passages * info.dimension if info.collection is not None else 0
    size = max(1, in_database + sum(file.bytes for file in info.files.values()))
    read = 0

    def count(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        if report is not None:
            report(read / size)

    try:
        if folder.is_symlink():
            raise IndexCorrupt("file", version=info.version, file=folder.name, reason="it is a symbolic link")
        marks = [_check_file(folder / name, info) for name in info.files]
        for name, file in info.files.items():
            if verify == "checksum" and durable.sha256_of(folder / name, count) != file.sha256:
                raise IndexCorrupt("checksum", version=info.version, file=name)
            if in_order is not None:
                in_order(f"{name}: {file.bytes} bytes, sha256 {file.sha256}")
    except OSError as error:
        file_name = Path(error.filename).name if error.filename else MANIFEST
        raise IndexCorrupt("file", version=info.version, file=file_name, reason=error.strerror) from error
    if info.collection is not None and verify == "checksum":
        vector_store(info.index_type, settings).check(info, count)
        if in_order is not None:
            in_order(f"{info.collection.url}: {in_database} bytes, sha256 {info.collection.vectors_sha256}")
    return (manifest.mark, *marks)


def open_checked(manifest: Manifest, settings: Settings | None) -> IndexSnapshot:
    """Open the files that a manifest names, after `check_files`, and its collection where it has one.

    Raises IndexCorrupt, and IndexUnreachable.
    """
    info, folder = manifest.info, manifest.folder
    identity = check_files(manifest, "manifest")
    # An error that is kept, in a log or a swap's outcome, must not keep a mapping.
    with ExitStack() as opened:
        held = _hold(folder, info)
        opened.callback(held.close)
        fields = PassageFields(info.passages_format, info.metadata)
        passages = PassageFile.open(folder / PASSAGES_FILE, version=info.version, fields=fields)
        opened.callback(passages.close)
        _check_count(info, PASSAGES_FILE, len(passages))
        bm25 = None
        if info.bm25 is not None:
            bm25 = Bm25Index.open(folder, info.bm25, n_passages=info.n_passages, version=info.version)
        beside: dict[str, Any] = {"passages": passages, "bm25": bm25, "held": held}
        beside |= {"folder": folder, "identity": identity}
        if info.collection is not None:
            snapshot = vector_store(info.index_type, settings).open(info, **beside)
        else:
            masked = None
            if MASKED_FILE in info.files:
                masked = np.array(map_array(folder / MASKED_FILE, "<i8", info.version))
            index = FaissIndex.open(folder / INDEX_FILE, version=info.version, masked=masked)
            opened.callback(index.close)
            _check_index(info, index)
            vectors = None
            if is_lossy(info.index_type):
                shape = (info.n_passages, info.dimension)
                vectors = VectorFile.open(folder / VECTORS_FILE, shape=shape, version=info.version)
                opened.callback(vectors.close)
            snapshot = FaissSnapshot(index=index, vectors=vectors, info=info, **beside)
        opened.pop_all()
    return snapshot


def check_opened(manifest: Manifest, settings: Settings | None) -> None:
    """Raise IndexCorrupt for files that `open_checked` refuses, and for a vector in one that is not finite."""
    info = manifest.info
    with closing(open_checked(manifest, settings)) as snapshot:
        first = 0
        # a database refuses vectors that are not finite by itself
        for vectors in snapshot.vector_slices() if info.collection is None else ():  # (b, d)
            strange = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
            if strange.size:
                file = VECTORS_FILE if VECTORS_FILE in info.files else INDEX_FILE
                reason = f"the vector of row {first + strange[0]} is not finite"
                raise IndexCorrupt("file", version=info.version, file=file, reason=reason)
            first += len(vectors)


def _hold(folder: Path, info: IndexInfo) -> ExitStack:
    """Keep `prune`, on any machine, from removing these files until the stack is closed."""
    with ExitStack() as held:
        for name in info.files:
            try:
                descriptor = durable.hold(folder / name)
            except FileNotFoundError:
                raise IndexCorrupt("missing", version=info.version, file=name) from None
            except OSError as error:
                raise IndexCorrupt("file", version=info.version, file=name, reason=error.strerror) from error
            if descriptor is not None:
                held.callback(os.close, descriptor)
        return held.pop_all()


def _check_count(info: IndexInfo, name: str, found: int) -> None:
    if found != info.n_passages:
        raise IndexCorrupt("count", version=info.version, file=name, found=found, expected=info.n_passages)


def _check_index(info: IndexInfo, index: FaissIndex) -> None:
    _check_count(info, INDEX_FILE, index.n_vectors)
    if index.dimension != info.dimension:
        raise IndexCorrupt(
            "dimension", version=info.version, file=INDEX_FILE, found=index.dimension, expected=info.dimension
        )
    if index.index_type != info.index_type:
        raise IndexCorrupt(
            "file",
            version=info.version,
            file=INDEX_FILE,
            reason=f"it is of type {index.index_type} where its manifest says {info.index_type}",
        )


def _check_file(path: Path, info: IndexInfo) -> FileMark:
    try:
        state = path.lstat()
    except FileNotFoundError:
        raise IndexCorrupt("missing", version=info.version, file=path.name) from None
    if stat.S_ISLNK(state.st_mode):
        raise IndexCorrupt("file", version=info.version, file=path.name, reason="it is a symbolic link")
    if not stat.S_ISREG(state.st_mode):
        raise IndexCorrupt("missing", version=info.version, file=path.name)
    expected = info.files[path.name].bytes
    if state.st_size != expected:
        raise IndexCorrupt("size", version=info.version, file=path.name, found=state.st_size, expected=expected)
    return FileMark.of(state)
