"""One collection of a Milvus database: the vectors of one version, row by row, never changed once they are all there.

The database compares each question with every vector (FLAT, inner product). It only proposes rows: their vectors come
along, and scores are computed from those.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import SplitResult, urlsplit

import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt, IndexNotResident, IndexUnreachable, OpenbookError, SettingInvalid
from openbook.storage.vectors import slices

# What pymilvus is asked with; a file is a database of milvus-lite, in the process that asks.
SCHEMES = {"milvus": "http://", "milvus+https": "https://", "milvus+file": ""}
LITE_SUFFIX = ".db"
DEFAULT_NAME, DEFAULT_PORT = "openbook", 19530
# The setting that lists what may be opened.
DATABASES = "OPENBOOK_MILVUS_DATABASES"
ROW, VECTOR = "row", "vector"
# Properties of a collection that is whole: the manifest for people and other programs, and what opening compares.
MANIFEST_PROPERTY, ENCODER_PROPERTY, VECTORS_PROPERTY = (
    "openbook.manifest",
    "openbook.encoder_fingerprint",
    "openbook.vectors_sha256",
)
# A call that takes longer has failed; to load a collection may read all of it from a disk.
ASK_S, LOAD_S = 5.0, 600.0
# A database that has failed is asked again after so long, by one thread: questions fail at once meanwhile.
PAUSE_S = 1.0
# A message of the database's protocol holds 64 MiB, and one call gives at most 16,384 rows.
MESSAGE_BYTES, MOST_ROWS = 16 << 20, 4096

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a collection lies: `database` as pymilvus takes it, and the collection's name, or the prefix of names."""

    scheme: str
    database: str
    name: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Of milvus://host:port/name, milvus+https:// for TLS, or milvus+file:///folder/file.db/name.

        Raises SettingInvalid for anything else.
        """
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            # not said again: it may hold a secret
            reason = (
                "the address of a database holds no user, no query and no fragment; OPENBOOK_MILVUS_TOKEN lets you in"
            )
            raise SettingInvalid(setting="URL", reason=reason)
        path, name = parts.path, parts.path.strip("/")
        if parts.scheme == "milvus+file":
            path, suffix, name = path.partition(LITE_SUFFIX)
            path, name = path + suffix, name.strip("/")
        name = name or DEFAULT_NAME
        has_place = path.endswith(LITE_SUFFIX) and not parts.netloc if parts.scheme == "milvus+file" else parts.netloc
        if (
            parts.scheme not in SCHEMES
            or not has_place
            or not _has_port(parts)
            or not (name.isascii() and name.isidentifier())
        ):
            reason = (
                f"{url} is no address of a database: milvus://host:port/prefix, milvus+https://host:port/prefix or "
                "milvus+file:///folder/file.db/prefix, whose prefix is letters, digits and '_'"
            )
            raise SettingInvalid(setting="URL", reason=reason)
        return cls(parts.scheme, SCHEMES[parts.scheme] + (parts.netloc or path), name)

    @property
    def url(self) -> str:
        """This address as a URL: the inverse of `parse`."""
        return f"{self.scheme}://{self.database.removeprefix(SCHEMES[self.scheme])}/{self.name}"

    @property
    def place(self) -> tuple[str, str, int]:
        """What two addresses of one database share: scheme, host and port, or scheme and file."""
        parts = urlsplit(self.database)
        if not SCHEMES[self.scheme]:
            return self.scheme, self.database, 0
        return self.scheme, parts.hostname or "", parts.port or DEFAULT_PORT


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases that the operator lists, and the token that opens them. What a file names is compared with these:
    no other is connected to, and no other gets the token."""

    places: frozenset[tuple[str, str, int]] = frozenset()
    token: str = field(default="", repr=False)

    @classmethod
    def listed(cls, addresses: str, token: str = "") -> "Databases":
        """Of addresses with commas between them. Raises SettingInvalid for what is none."""
        try:
            places = frozenset(Address.parse(one.strip()).place for one in addresses.split(",") if one.strip())
        except SettingInvalid as error:
            raise SettingInvalid(setting=DATABASES, reason=error.data["reason"]) from None
        return cls(places, token)

    def open(self, address: Address, *, version: str, dimension: int) -> "Collection":
        """The collection at an address that a file names. Raises IndexUnreachable where the operator lists none."""
        if address.place not in self.places:
            reason = f"{DATABASES} does not list {address.url}, and a file alone opens no connection"
            raise IndexUnreachable(version=version, reason=reason)
        return Collection(address, version=version, dimension=dimension, token=self.token)


class Collection:
    """An open collection. Any number of threads may search at once.

    Every method but `close` raises IndexUnreachable, at once while the database is known not to answer.
    """

    def __init__(self, address: Address, *, version: str, dimension: int, token: str = "") -> None:
        self.address = address
        self._version = version
        self._dimension = dimension
        self._lock = threading.Lock()
        self._reason = ""
        self._closing = threading.Event()
        try:
            from pymilvus import MilvusClient
        except ImportError:
            reason = "this program lacks pymilvus: pip install 'openbook[milvus]'"
            raise IndexUnreachable(version=version, reason=reason) from None
        # they log every failure with the whole request, and so do we, in a line
        for library in ("pymilvus", "grpc"):
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._client: Any = None
        try:
            self._client = MilvusClient(address.database, token=token, timeout=ASK_S)
        except Exception as error:
            self._fail(error)

    # --- reading -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise IndexUnreachable where the database has failed and has not answered since."""
        reason = self._reason
        if reason:
            raise IndexUnreachable(version=self._version, reason=reason)

    def sealed(self, n_rows: int) -> str | None:
        """The sha256 of its vectors, loaded, where all `n_rows` are there; None where it is not whole, or not there."""
        if not self.ask("has_collection"):
            return None
        found = self.ask("describe_collection").get("properties", {}).get(VECTORS_PROPERTY)
        if not found:
            return None
        self.ask("load_collection", within_s=LOAD_S)
        (counted,) = self.ask("query", filter="", output_fields=["count(*)"], consistency_level="Strong")
        return str(found) if counted["count(*)"] == n_rows else None

    def search(
        self, queries: NDArray[np.float32], k: int, condition: str = ""
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The k nearest rows of each query, (k,), and their vectors, (k, d)."""
        if len(queries) * k * self._dimension * queries.itemsize > MESSAGE_BYTES:
            return [(rows, self.vectors(rows)) for rows in self.rows(queries, k, condition)]
        found = []
        for hits in self._hits(queries, k, condition, [VECTOR]):
            vectors = self._checked(np.array([hit["entity"][VECTOR] for hit in hits], dtype=np.float32), len(hits.ids))
            found.append((np.array(hits.ids, dtype=np.int64), vectors))
        return found

    def rows(self, queries: NDArray[np.float32], k: int, condition: str = "") -> list[NDArray[np.int64]]:
        """The k nearest rows of each query: (k,)."""
        return [np.array(hits.ids, dtype=np.int64) for hits in self._hits(queries, k, condition, [])]

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these rows, in this order: (n, d)."""
        self.check()
        found = np.empty((len(rows), self._dimension), dtype=np.float32)  # (n, d)
        for part in slices(len(rows), min(MOST_ROWS, max(1, MESSAGE_BYTES // (4 * self._dimension)))):
            wanted, places = np.unique(rows[part], return_inverse=True)
            some = self.ask("get", ids=wanted.tolist(), output_fields=[VECTOR])
            by_row = {one[ROW]: one[VECTOR] for one in some}
            if by_row.keys() != set(wanted.tolist()):
                raise self._damaged(f"it gives {len(by_row)} of {len(wanted)} vectors")
            vectors = self._checked(np.array([by_row[row] for row in wanted.tolist()], dtype=np.float32), len(wanted))
            found[part] = vectors[places]
        return found

    def close(self) -> None:
        """Let go of the connection. May be called again."""
        self._closing.set()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- below ---------------------------------------------------------------------------------------------

    def ask(self, call: str, *, within_s: float = ASK_S, **arguments: Any) -> Any:
        """What a method of pymilvus' client answers for this collection."""
        client = self._client
        if client is None:
            raise IndexNotResident(version=self._version, resident=())
        try:
            return getattr(client, call)(collection_name=self.address.name, timeout=within_s, **arguments)
        except Exception as error:
            if self._client is None:
                raise IndexNotResident(version=self._version, resident=()) from None
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        reason = _reason_of(error)
        with self._lock:
            first, self._reason = not self._reason, reason
        if first and self._client is not None:
            logger.error("the database %s of %s fails: %s", self.address.url, self._version, reason)
            threading.Thread(target=self._ask_again, name="milvus-again", daemon=True).start()
        raise IndexUnreachable(version=self._version, reason=reason) from None

    def _ask_again(self) -> None:
        """Until the database answers. One that was started again has let go of the collection: it loads it."""
        while not self._closing.wait(PAUSE_S):
            with suppress(OpenbookError):
                self.ask("load_collection")
                self._reason = ""
                logger.info("the database %s answers again", self.address.url)
                return

    def _hits(self, queries: NDArray[np.float32], k: int, condition: str, fields: Sequence[str]) -> list[Any]:
        self.check()
        if not np.isfinite(queries).all():
            raise ValueError("a query vector is not finite")
        # nothing is ever added to it: no search needs to wait for what others write
        found = self.ask(
            "search",
            data=queries,
            limit=k,
            filter=condition,
            output_fields=fields,
            search_params={"metric_type": "IP"},
            consistency_level="Eventually",
        )
        if [len(hits.ids) for hits in found] != [k] * len(queries):
            raise self._damaged(f"it finds {[len(hits.ids) for hits in found]} rows where {k} are there")
        return list(found)

    def _checked(self, vectors: NDArray[np.float32], n: int) -> NDArray[np.float32]:
        if vectors.shape != (n, self._dimension) or not np.isfinite(vectors).all():
            raise self._damaged("what it gives are no vectors of this version")
        return vectors

    def _damaged(self, reason: str) -> IndexCorrupt:
        return IndexCorrupt("file", version=self._version, file=self.address.name, reason=reason)


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is one, or left out."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def in_list(rows: NDArray[np.int64], *, absent: bool = False) -> str:
    """The condition that a row is one of these; with `absent`, none of these, which may be none."""
    return f"{ROW} {'not in' if absent else 'in'} {rows.tolist()}" if len(rows) else ""


def _reason_of(error: Exception) -> str:
    """Why, without the library's own sentence, which may hold addresses."""
    code = getattr(error, "code", None)
    code = code() if callable(code) else code
    return f"{type(error).__name__}, code {getattr(code, 'name', code)}" if code is not None else type(error).__name__
