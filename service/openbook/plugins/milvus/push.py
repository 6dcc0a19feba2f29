"""A version whose vectors go to a Milvus database, published beside the one that it is made from.

The database gets what is large and searched as a whole. Passages and BM25 stay files of the version, so that services
read the same text, filter it in the same way and add up the same scores.
"""

import datetime
import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np

from openbook.entities import CollectionInfo, IndexInfo
from openbook.errors import IndexUnreachable
from openbook.plugins.milvus.collection import (
    ENCODER_PROPERTY,
    LOAD_S,
    MANIFEST_PROPERTY,
    MESSAGE_BYTES,
    ROW,
    VECTOR,
    VECTORS_PROPERTY,
    Address,
    Collection,
)
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import INDEX_FILE, MASKED_FILE, VECTORS_FILE, manifest_bytes
from openbook.storage.placing import check_free, link_files, making, put_in_place
from openbook.storage.search_parameters import N_CANDIDATES
from openbook.storage.snapshot import IndexSnapshot

MILVUS = "milvus"
# Rows whose vectors come with a search. The database orders them by float32 sums, so a few more than K are enough.
CANDIDATES = 64
# Of an insertion; each number travels as text of a Python list before it is a message.
INSERT_BYTES = MESSAGE_BYTES // 4

Report = Callable[[float], None]


def push_vectors(
    store: IndexStore,
    version: str,
    prefix: Address,
    name: str,
    report: Report,
    *,
    token: str = "",
    replace_version: bool = False,
) -> IndexInfo:
    """Publish `name` in the store, with the passages and BM25 of `version`, and its vectors in a database.

    The collection is called after the prefix, the name and the content. One that is whole is taken as it is; one that
    a push left half filled is made again. Nothing else is ever changed or removed there. Raises IndexExists for `name`,
    IndexUnreachable, and what `IndexStore.verify` raises for `version`.
    """
    check_free(store, name, replace=replace_version)
    store.check(version, verify="checksum", report=lambda share: report(share / 2))
    with closing(store.open(version)) as snapshot, making(store, name) as place:
        source = snapshot.info
        content = hashlib.sha256(manifest_bytes(source)).hexdigest()[:8]
        address = replace(prefix, name=f"{prefix.name}_{_as_identifier(name)}_{content}")
        left_out = (INDEX_FILE, MASKED_FILE, VECTORS_FILE)
        files = {file: one for file, one in source.files.items() if file not in left_out}
        link_files(store, source, files, place)
        info = replace(
            source,
            version=name,
            index_type=MILVUS,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            factory="",
            index_reason=f"a database holds its vectors, copied from {version}",
            search={N_CANDIDATES: CANDIDATES},
            files=files,
        )
        with closing(Collection(address, version=name, dimension=source.dimension, token=token)) as collection:
            info = _filled(collection, snapshot, info, lambda share: report(0.5 + share / 2))
        put_in_place(store, place, info, replace=replace_version)
    return info


def _filled(collection: Collection, snapshot: IndexSnapshot, info: IndexInfo, report: Report) -> IndexInfo:
    """The manifest of `info` whose vectors the collection has, all of them on the database's disk."""
    sha256 = collection.sealed(len(snapshot))
    if sha256 is not None:
        return replace(info, collection=CollectionInfo(collection.address.url, sha256))
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field(ROW, DataType.INT64, is_primary=True)
    schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=info.dimension)
    index = MilvusClient.prepare_index_params()
    index.add_index(VECTOR, index_type="FLAT", metric_type="IP")
    collection.ask("drop_collection")
    collection.ask("create_collection", schema=schema, index_params=index, within_s=LOAD_S)
    digest, row = hashlib.sha256(), 0
    for vectors in snapshot.vector_slices(max(1, INSERT_BYTES // (info.dimension * np.float32().nbytes))):
        rows = [{ROW: row + place, VECTOR: vector} for place, vector in enumerate(vectors)]
        collection.ask("insert", data=rows, within_s=LOAD_S)
        digest.update(vectors.tobytes())
        row += len(rows)
        report(row / len(snapshot))
    collection.ask("flush", within_s=LOAD_S)
    info = replace(info, collection=CollectionInfo(collection.address.url, digest.hexdigest()))
    properties = {
        MANIFEST_PROPERTY: manifest_bytes(info).decode(),
        ENCODER_PROPERTY: info.encoder_fingerprint,
        # by this opening tells a collection that is whole
        VECTORS_PROPERTY: digest.hexdigest(),
    }
    collection.ask("alter_collection_properties", properties=properties)
    if collection.sealed(len(snapshot)) != digest.hexdigest():
        raise IndexUnreachable(version=info.version, reason="it has not kept what was sent; push again")
    return info


def _as_identifier(version: str) -> str:
    """A version's name in letters, digits and '_', another for each version."""
    return "".join(one if one.isalnum() else f"_{ord(one):02x}" for one in version)
