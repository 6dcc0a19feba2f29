"""manifest.json of an index version: the one module that writes it and reads it."""

import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from openbook.entities import Bm25Info, FileInfo, IndexInfo
from openbook.errors import IndexUnreadable, ManifestInvalid, ManifestMissing
from openbook.storage.durable import FileMark, read_small
from openbook.storage.passage_fields import METADATA_NAME, MOST_FIELDS, PLAIN_FORMAT, RICH_FORMAT

# The files lie beside the manifest in format 1, and in the folder that its field `folder` names in format 2.
BESIDE, IN_FOLDER = 1, 2
MANIFEST = "manifest.json"
MOST_BYTES = 1_000_000
MOST_SAID = 200
INDEX_FILE = "index.faiss"
PASSAGES_FILE = "passages.arrow"
# Beside an index that cannot give its vectors back.
VECTORS_FILE = "vectors.npy"
# Beside a graph of which an update masks vectors: their places in it.
MASKED_FILE = "masked.npy"
# Together, and with `bm25` in the manifest, or not at all.
BM25_TERMS = "bm25.terms.npy"
BM25_OFFSETS = "bm25.offsets.npy"
BM25_ROWS = "bm25.rows.npy"
BM25_SCORES = "bm25.scores.npy"
BM25_ANALYSERS = ("english",)
BM25_MOST_K1 = 1000
BM25_FILES = (BM25_TERMS, BM25_OFFSETS, BM25_ROWS, BM25_SCORES)
MILVUS = "milvus"
INDEX_TYPES = ("flat", "hnsw", "ivfpq", "factory", MILVUS)
LOSSLESS_TYPES = ("flat", "hnsw")
# The last field, so that one pattern finds it: the sha256 of the whole file with zeros in its own place.
SEAL = "manifest_sha256"

_INFO = TypeAdapter(IndexInfo)
FOLDER_NAME = re.compile(r"r-[0-9a-f]{8}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SEALED = re.compile(rb'(?P<before>.*,\n  "manifest_sha256": ")(?P<sha256>[0-9a-f]{64})(?P<after>"\n}\n)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that was read once: the folder in which its files lie, and which writing of manifest.json it was."""

    info: IndexInfo
    folder: Path
    mark: FileMark


def write_manifest(folder: Path, info: IndexInfo, files_in: str = "") -> None:
    """Write `info` for people too: indented, in the order of its fields, the format number first.

    `files_in` names the folder below the version's own in which the files lie; empty where they lie beside.
    """
    (folder / MANIFEST).write_bytes(manifest_bytes(info, files_in))


def manifest_bytes(info: IndexInfo, files_in: str = "") -> bytes:
    """What `write_manifest` writes."""
    fields = dataclasses.asdict(info)
    if info.passages_format == PLAIN_FORMAT:
        # as older versions of Openbook write it
        del fields["passages_format"], fields["metadata"]
    for name in ("lineage", "collection"):
        if fields[name] is None:
            del fields[name]
    content = {"format": IN_FOLDER} | fields | {"folder": files_in} if files_in else {"format": BESIDE} | fields
    return sealed(content)


def sealed(fields: Mapping[str, Any]) -> bytes:
    """A manifest of these fields, with the seal by which any byte that changes is found."""
    unsealed = {name: value for name, value in fields.items() if name != SEAL} | {SEAL: "0" * 64}
    content = json.dumps(unsealed, indent=2, ensure_ascii=False).encode() + b"\n"
    before, _, after = content.rpartition(b"0" * 64)
    return before + hashlib.sha256(content).hexdigest().encode() + after


def read_manifest(place: Path, version: str) -> IndexInfo:
    """What the manifest in `place` says: see `open_manifest`."""
    return open_manifest(place, version).info


def open_manifest(place: Path, version: str, *, must_be_sealed: bool = False) -> Manifest:
    """The manifest in `place`, which must be the one of `version`. Skips unknown fields.

    A seal that is there must fit. Raises ManifestMissing; ManifestInvalid with the first defect; IndexUnreadable
    where the file is there and cannot be read.
    """
    try:
        content, mark = read_small(place / MANIFEST, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestMissing(version=version) from error
    except OSError as error:
        raise IndexUnreadable(version=version, file=MANIFEST, reason=error.strerror) from error
    info, folder = parse_manifest(content, version, must_be_sealed=must_be_sealed)
    return Manifest(info, place / folder, mark)


def parse_manifest(content: bytes, version: str, *, must_be_sealed: bool = False) -> tuple[IndexInfo, str]:
    """What these bytes say, and the folder of the files below the version's own. Raises ManifestInvalid."""
    try:
        info, folder, has_seal = _parse(content, version)
        defect = _broken_seal(content) if has_seal or must_be_sealed else None
        if defect is not None:
            raise ValueError(defect)
    except (ValueError, RecursionError) as error:
        raise ManifestInvalid(version=version, reason=str(error)[:MOST_SAID]) from error
    return info, folder


def is_lossy(index_type: str) -> bool:
    """Whether an index of this type only proposes rows, and their vectors lie elsewhere: in a file, or a database."""
    return index_type not in LOSSLESS_TYPES


def required_files(index_type: str) -> tuple[str, ...]:
    """The files that a version of this type needs; it may have others."""
    if index_type == MILVUS:
        return (PASSAGES_FILE,)
    return (INDEX_FILE, PASSAGES_FILE, VECTORS_FILE) if is_lossy(index_type) else (INDEX_FILE, PASSAGES_FILE)


def resident_bytes(info: IndexInfo) -> int:
    """The memory that a warm version takes: all its files, or of a lossy index all but vectors and text.

    Vectors and text of a lossy index stay on the disk; a question reads a few rows of them.
    """
    left_out = (VECTORS_FILE, PASSAGES_FILE) if is_lossy(info.index_type) else ()
    return sum(file.bytes for name, file in info.files.items() if name not in left_out)


def is_date(text: str) -> bool:
    """Whether `text` is a date as a manifest writes it, 2018-12-20."""
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _parse(content: bytes, version: str) -> tuple[IndexInfo, str, bool]:
    """What it says, the folder of its files, and whether it has a seal. Raises ValueError with the first defect."""
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    found = fields.get("format")
    if found not in (BESIDE, IN_FOLDER) or isinstance(found, bool):
        raise ValueError(f"format {found!r:.80}, this Openbook reads formats {BESIDE} and {IN_FOLDER}")
    try:
        info = _INFO.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    folder = fields.get("folder") if found == IN_FOLDER else ""
    if found == IN_FOLDER and not (isinstance(folder, str) and FOLDER_NAME.fullmatch(folder)):
        raise ValueError(f"folder: {folder!r:.80} is no folder of a version")
    defect = _defect(info, version)
    if defect is not None:
        raise ValueError(defect)
    return info, str(folder), SEAL in fields


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
    """The first value that has the right type and cannot be."""
    if info.version != version:
        return f"version: it is the manifest of {info.version!r}"
    if info.n_passages < 1:
        return f"n_passages: {info.n_passages}"
    if info.dimension < 1:
        return f"dimension: {info.dimension}"
    if info.index_type not in INDEX_TYPES:
        return f"index_type: {info.index_type!r} is none of {', '.join(INDEX_TYPES)}"
    if (info.index_type == MILVUS) != (info.collection is not None):
        return f"collection: an index of type {info.index_type} has {'one' if info.collection is None else 'none'}"
    if info.collection is not None and not _SHA256.fullmatch(info.collection.vectors_sha256):
        return "collection.vectors_sha256: no sha256 in hexadecimal"
    if info.snapshot_date is not None and not is_date(info.snapshot_date):
        return f"snapshot_date: {info.snapshot_date!r} is no date such as 2018-12-20"
    if info.bm25 is not None and (defect := _bm25_defect(info.bm25, info.files)) is not None:
        return f"bm25.{defect}"
    if info.lineage is not None and min(dataclasses.astuple(info.lineage)[2:]) < 0:
        return "lineage: a count below 0"
    for name, value in info.search.items():
        if value < 1:
            return f"search.{name}: {value}"
    if info.passages_format not in (PLAIN_FORMAT, RICH_FORMAT):
        return f"passages_format: {info.passages_format}, this Openbook reads {PLAIN_FORMAT} and {RICH_FORMAT}"
    if info.metadata and info.passages_format == PLAIN_FORMAT:
        return f"metadata: passages of format {PLAIN_FORMAT} have none"
    if len(info.metadata) > MOST_FIELDS or not all(map(METADATA_NAME.fullmatch, info.metadata)):
        return f"metadata: more than {MOST_FIELDS} fields, or a name that is none"
    for name in required_files(info.index_type):
        if name not in info.files:
            return f"files.{name}: Field required"
    for name, file in info.files.items():
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            return f"files.{name}: no name of a file of a version"
        if file.bytes < 0 or not _SHA256.fullmatch(file.sha256):
            return f"files.{name}: neither a size nor a sha256 in hexadecimal"
    return None
