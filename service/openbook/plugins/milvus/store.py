"""The plug-in's door: opens, reads and fills collections."""

import hashlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt, SettingInvalid
from openbook.plugins.milvus.collection import Address, Collection, Databases
from openbook.plugins.milvus.push import push_vectors
from openbook.plugins.milvus.settings import MilvusSettings
from openbook.plugins.milvus.snapshot import MilvusSnapshot
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.vector_store import Report, VectorStore
from openbook.storage.vectors import slices


class MilvusStore(VectorStore):
    def open(self, info: IndexInfo, **opened: Any) -> IndexSnapshot:
        return MilvusSnapshot(collection=self._collection(info), info=info, **opened)

    def check(self, info: IndexInfo, count: Callable[[int], None]) -> None:
        digest = hashlib.sha256()
        with closing(self._collection(info)) as collection:
            for part in slices(info.n_passages):
                vectors = collection.vectors(np.arange(part.start, part.stop))
                digest.update(vectors.tobytes())
                count(vectors.nbytes)
        if info.collection is None or digest.hexdigest() != info.collection.vectors_sha256:
            raise IndexCorrupt("checksum", version=info.version, file=collection.address.name)

    def push(
        self, store: IndexStore, version: str, url: str, name: str, report: Report, *, replace: bool = False
    ) -> IndexInfo:
        token = self._databases.token
        return push_vectors(store, version, Address.parse(url), name, report, token=token, replace_version=replace)

    @property
    def _databases(self) -> Databases:
        if not isinstance(self.settings, MilvusSettings):
            return Databases()
        token = self.settings.milvus_token
        return Databases.listed(self.settings.milvus_databases, "" if token is None else token.get_secret_value())

    def _collection(self, info: IndexInfo) -> Collection:
        """The collection, open and loaded. Raises IndexUnreachable, and IndexCorrupt for one that is another."""
        named = info.collection
        assert named is not None
        try:
            address = Address.parse(named.url)
        except SettingInvalid as error:
            raise IndexCorrupt("file", version=info.version, file=MANIFEST, reason=error.data["reason"]) from None
        collection = self._databases.open(address, version=info.version, dimension=info.dimension)
        try:
            if collection.sealed(info.n_passages) != named.vectors_sha256:
                reason = "the database does not have the vectors of this version there; push it again"
                raise IndexCorrupt("file", version=info.version, file=address.name, reason=reason)
        except BaseException:
            collection.close()
            raise
        return collection
