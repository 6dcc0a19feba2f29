"""manifest.json of an index version: the one module that writes it and reads it."""

import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from openbook.entities import Bm25Info, FileInfo, IndexInfo
from openbook.errors import IndexUnreadable, ManifestInvalid, ManifestMissing

FORMAT = 1
MANIFEST = "manifest.json"
INDEX_FILE = "index.faiss"
PASSAGES_FILE = "passages.arrow"
# Beside an index that cannot give its vectors back.
VECTORS_FILE = "vectors.npy"
# Together, and with `bm25` in the manifest, or not at all.
BM25_TERMS = "bm25.terms.npy"
BM25_OFFSETS = "bm25.offsets.npy"
BM25_ROWS = "bm25.rows.npy"
BM25_SCORES = "bm25.scores.npy"
BM25_ANALYSERS = ("english",)
BM25_MOST_K1 = 1000
BM25_FILES = (BM25_TERMS, BM25_OFFSETS, BM25_ROWS, BM25_SCORES)
INDEX_TYPES = ("flat", "hnsw", "ivfpq", "factory")
LOSSLESS_TYPES = ("flat", "hnsw")
# The last field, so that one pattern finds it: the sha256 of the whole file with zeros in its own place.
SEAL = "manifest_sha256"

_INFO = TypeAdapter(IndexInfo)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SEALED = re.compile(rb'(?P<before>.*,\n  "manifest_sha256": ")(?P<sha256>[0-9a-f]{64})(?P<after>"\n}\n)', re.DOTALL)


def write_manifest(folder: Path, info: IndexInfo) -> None:
    """Write `info` for people too: indented, in the order of its fields, the format number first."""
    (folder / MANIFEST).write_bytes(sealed({"format": FORMAT} | dataclasses.asdict(info)))


def sealed(fields: Mapping[str, Any]) -> bytes:
    """A manifest of these fields, with the seal by which any byte that changes is found."""
    unsealed = {name: value for name, value in fields.items() if name != SEAL} | {SEAL: "0" * 64}
    content = json.dumps(unsealed, indent=2, ensure_ascii=False).encode() + b"\n"
    before, _, after = content.rpartition(b"0" * 64)
    return before + hashlib.sha256(content).hexdigest().encode() + after


def check_sealed(folder: Path, version: str) -> None:
    """Raise ManifestInvalid where the manifest has no seal, or the seal of another."""
    defect = _broken_seal((folder / MANIFEST).read_bytes())
    if defect is not None:
        raise ManifestInvalid(version=version, reason=defect)


def read_manifest(folder: Path, version: str) -> IndexInfo:
    """The manifest in `folder`, which must be that of `version`. Unknown fields are passed over.

    Raises ManifestMissing; ManifestInvalid with the first defect that was found; IndexUnreadable where the file is
    there and the system refuses it.
    """
    try:
        content = (folder / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestMissing(version=version) from error
    except OSError as error:
        raise IndexUnreadable(version=version, file=MANIFEST, reason=error.strerror) from error
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestInvalid(version=version, reason=f"not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ManifestInvalid(version=version, reason="not a JSON object")
    found = fields.get("format")
    if found != FORMAT or isinstance(found, bool):
        raise ManifestInvalid(version=version, reason=f"format {found!r}, this Openbook reads format {FORMAT}")
    try:
        info = _INFO.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestInvalid(version=version, reason=f"{place}: {first['msg']}") from error
    defect = _defect(info, version) or (_broken_seal(content) if SEAL in fields else None)
    if defect is not None:
        raise ManifestInvalid(version=version, reason=defect)
    return info


def is_lossy(index_type: str) -> bool:
    """Whether an index of this type cannot give its vectors back, so that they lie in a file beside it."""
    return index_type not in LOSSLESS_TYPES


def required_files(index_type: str) -> tuple[str, ...]:
    """Without which a version of this type cannot be opened; it may have others."""
    return (INDEX_FILE, PASSAGES_FILE, VECTORS_FILE) if is_lossy(index_type) else (INDEX_FILE, PASSAGES_FILE)


def resident_bytes(info: IndexInfo) -> int:
    """What a version takes of memory once it is warm: all its files, or of a lossy index all but vectors and text.

    Those of a lossy index are meant to stay on the disk, from which a question reads a few rows.
    """
    left_out = (VECTORS_FILE, PASSAGES_FILE) if is_lossy(info.index_type) else ()
    return sum(file.bytes for name, file in info.files.items() if name not in left_out)


def is_date(text: str) -> bool:
    """Whether `text` is a date as a manifest writes it, 2018-12-20."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _broken_seal(content: bytes) -> str | None:
    found = _SEALED.fullmatch(content)
    if found is None:
        return f"{SEAL}: it does not end with one; build or publish the version again"
    unsealed = found["before"] + b"0" * 64 + found["after"]
    if hashlib.sha256(unsealed).hexdigest().encode() != found["sha256"]:
        return f"{SEAL}: it has been changed since it was written"
    return None


def _bm25_defect(bm25: Bm25Info, files: Mapping[str, FileInfo]) -> str | None:
    if not (0 <= bm25.k1 <= BM25_MOST_K1 and 0 <= bm25.b <= 1):
        return f"k1: {bm25.k1} and b: {bm25.b} are no parameters of BM25"
    if bm25.analyser not in BM25_ANALYSERS:
        return f"analyser: {bm25.analyser!r} is none of {', '.join(BM25_ANALYSERS)}"
    if bm25.n_terms < 0:
        return f"n_terms: {bm25.n_terms}"
    missing = [name for name in BM25_FILES if name not in files]
    return f"files: {missing[0]} is not among the files" if missing else None


def _defect(info: IndexInfo, version: str) -> str | None:
    """What no type can say."""
    if info.version != version:
        return f"version: it is the manifest of {info.version!r}"
    if info.n_passages < 1:
        return f"n_passages: {info.n_passages}"
    if info.dimension < 1:
        return f"dimension: {info.dimension}"
    if info.index_type not in INDEX_TYPES:
        return f"index_type: {info.index_type!r} is none of {', '.join(INDEX_TYPES)}"
    if info.snapshot_date is not None and not is_date(info.snapshot_date):
        return f"snapshot_date: {info.snapshot_date!r} is no date such as 2018-12-20"
    if info.bm25 is not None and (defect := _bm25_defect(info.bm25, info.files)) is not None:
        return f"bm25.{defect}"
    for name, value in info.search.items():
        if value < 1:
            return f"search.{name}: {value}"
    for name in required_files(info.index_type):
        if name not in info.files:
            return f"files.{name}: Field required"
    for name, file in info.files.items():
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            return f"files.{name}: no name of a file of a version"
        if file.bytes < 0 or not _SHA256.fullmatch(file.sha256):
            return f"files.{name}: neither a size nor a sha256 in hexadecimal"
    return None
