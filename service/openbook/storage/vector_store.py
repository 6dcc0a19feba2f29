"""Databases that hold the vectors of versions. A plug-in of the group `openbook.vectors` opens those of one type."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_settings import BaseSettings

from openbook.entities import IndexInfo
from openbook.extensions import VECTORS, extensions
from openbook.storage.snapshot import IndexSnapshot

if TYPE_CHECKING:
    from openbook.storage.index_store import IndexStore

Report = Callable[[float], None]


class VectorStore(ABC):
    """What opens the collections of versions whose manifest has its name as the type of the index.

    No connection and no secret goes to an address that only a manifest names: `settings`, the operator's, decide. They
    are None where nobody gave any: then nothing is connected to.
    """

    def __init__(self, settings: BaseSettings | None) -> None:
        self.settings = settings

    @abstractmethod
    def open(self, info: IndexInfo, **opened: Any) -> IndexSnapshot:
        """The version, with `opened` as the other arguments of its IndexSnapshot.

        Raises IndexUnreachable, and IndexCorrupt for a collection of other vectors.
        """

    @abstractmethod
    def check(self, info: IndexInfo, count: Callable[[int], None]) -> None:
        """Read every vector; `count` receives their bytes. Raises what `open` raises, and IndexCorrupt."""

    @abstractmethod
    def push(
        self, store: "IndexStore", version: str, url: str, name: str, report: Report, *, replace: bool = False
    ) -> IndexInfo:
        """Publish `name` in `store`: the passages and BM25 of `version`, and its vectors below `url`.

        `report` receives the share that is done. Raises IndexExists for `name`, unless `replace`, and IndexUnreachable.
        """


def vector_store(kind: str, settings: BaseSettings | None) -> VectorStore:
    """What opens the collections of indexes of this type. A manifest of another type is not read: see `manifest`."""
    opened: VectorStore = extensions(VECTORS)[kind].load()(settings)
    return opened


def kind_of(url: str) -> str | None:
    """The name of the plug-in for this address of a database: name://, or name+way://. None for another address."""
    name = urlsplit(url).scheme.partition("+")[0]
    return name if name in extensions(VECTORS) else None
