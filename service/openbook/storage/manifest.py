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

from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt, first_defect
from openbook.extensions import VECTORS, extensions
from openbook.storage.durable import FileMark, read_small

# 1 and 2 are of builds before the first release.
FORMAT = 3
MANIFEST = "manifest.json"
MOST_BYTES = 1_000_000
MOST_SAID = 200
INDEX_FILE = "index.faiss"
PASSAGES_FILE = "passages.arrow"
# Its columns: id, title and text alone; or with url, section, published and declared metadata.
PLAIN_FORMAT, RICH_FORMAT = 1, 2
# Beside an index that cannot give its vectors back.
VECTORS_FILE = "vectors.npy"
# Beside a graph of which an update masks vectors: their places in it.
MASKED_FILE = "masked.npy"
# Together, and with `bm25` in the manifest, or not at all.
BM25_TERMS = "bm25.terms.npy"
BM25_OFFSETS = "bm25.offsets.npy"
BM25_ROWS = "bm25.rows.npy"
BM25_SCORES = "bm25.scores.npy"
BM25_FILES = (BM25_TERMS, BM25_OFFSETS, BM25_ROWS, BM25_SCORES)
DATA_FILES = (INDEX_FILE, MASKED_FILE, PASSAGES_FILE, VECTORS_FILE, *BM25_FILES)
# Of indexes in files; other types are names of plug-ins, which open collections.
INDEX_TYPES = ("flat", "hnsw", "ivfpq", "factory")
LOSSLESS_TYPES = ("flat", "hnsw")
# The last field: the sha256 of the others, so that any byte that changes is found.
SEAL = "manifest_sha256"

_INFO = TypeAdapter(IndexInfo)
FOLDER_NAME = re.compile(r"r-[0-9a-f]{8}")


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
    fields = {name: value for name, value in dataclasses.asdict(info).items() if value is not None}
    return sealed({"format": FORMAT} | fields | {"folder": files_in})


def sealed(fields: Mapping[str, Any]) -> bytes:
    """A manifest of these fields, with its seal: the only bytes that are read as these fields."""
    others = {name: value for name, value in fields.items() if name != SEAL}
    seal = hashlib.sha256(json.dumps(others).encode()).hexdigest()
    return json.dumps({**others, SEAL: seal}, indent=2, ensure_ascii=False).encode() + b"\n"


def open_manifest(place: Path, version: str) -> Manifest:
    """The manifest in `place`, which must be the one of `version`. Skips unknown fields.

    Raises IndexCorrupt where there is none or it cannot be read, and with its first defect.
    """
    try:
        content, mark = read_small(place / MANIFEST, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IndexCorrupt("no_manifest", version=version) from error
    except OSError as error:
        raise IndexCorrupt("file", version=version, file=MANIFEST, reason=error.strerror) from error
    info, folder = parse_manifest(content, version)
    return Manifest(info, place / folder, mark)


def parse_manifest(content: bytes, version: str) -> tuple[IndexInfo, str]:
    """What these bytes say, and the folder of the files below the version's own. Raises IndexCorrupt."""
    try:
        return _parse(content, version)
    except (ValueError, RecursionError) as error:
        raise IndexCorrupt("manifest", version=version, reason=str(error)[:MOST_SAID]) from error


def is_lossy(index_type: str) -> bool:
    """Whether an index of this type only proposes rows, and their vectors lie elsewhere: in a file, or a database."""
    return index_type not in LOSSLESS_TYPES


def required_files(index_type: str) -> tuple[str, ...]:
    """The files that a version of this type needs; it may have others."""
    if index_type not in INDEX_TYPES:
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


def _parse(content: bytes, version: str) -> tuple[IndexInfo, str]:
    """What it says, and the folder of its files. Raises ValueError with the first defect."""
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    if fields.get("format") != FORMAT:
        raise ValueError(
            f"format {fields.get('format')!r:.80}, this Openbook reads format {FORMAT}: build the version again"
        )
    if content != sealed(fields):
        raise ValueError(f"{SEAL}: it has been changed since it was written")
    try:
        info = _INFO.validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(first_defect(error)) from error
    folder = fields.get("folder")
    if not isinstance(folder, str) or (folder and not FOLDER_NAME.fullmatch(folder)):
        raise ValueError(f"folder: {folder!r:.80} is no folder of a version")
    defect = _defect(info, version)
    if defect is not None:
        raise ValueError(defect)
    return info, folder


def _defect(info: IndexInfo, version: str) -> str | None:
    """What its fields say of each other that cannot be."""
    if info.version != version:
        return f"version: it is the manifest of {info.version!r}"
    in_files = info.index_type in INDEX_TYPES
    if not in_files and info.index_type not in extensions(VECTORS):
        return f"index_type: {info.index_type!r} is none of {', '.join((*INDEX_TYPES, *extensions(VECTORS)))}"
    if in_files != (info.collection is None):
        return f"collection: an index of type {info.index_type} has {'one' if info.collection is None else 'none'}"
    if info.snapshot_date is not None and not is_date(info.snapshot_date):
        return f"snapshot_date: {info.snapshot_date!r} is no date such as 2018-12-20"
    if info.metadata and info.passages_format == PLAIN_FORMAT:
        return f"metadata: passages of format {PLAIN_FORMAT} have none"
    required = (*required_files(info.index_type), *(BM25_FILES if info.bm25 is not None else ()))
    missing = [name for name in required if name not in info.files]
    return f"files.{missing[0]}: Field required" if missing else None
