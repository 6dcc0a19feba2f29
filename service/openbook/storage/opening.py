"""The store that an address names: a folder of this machine, or one that a plug-in of `openbook.stores` opens."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from openbook.errors import SettingInvalid
from openbook.extensions import STORES, extensions
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

Count = Callable[[int], None]


def ignore(n_bytes: int) -> None:
    """Counts nothing."""


class RemoteVersions(IndexStore):
    """Versions that lie elsewhere; those that are opened have copies in `folder`. A plug-in makes its own of it."""

    url: str

    @abstractmethod
    def receive(
        self, store: IndexStore, version: str, report: Callable[[float], None], *, replace: bool = False
    ) -> bool:
        """Bring a version of a folder here; `report` receives the share that is done. False where it is here already.

        Raises what `IndexStore.verify` raises, and IndexExists for another version of this name, unless `replace`.
        """

    @abstractmethod
    def remove(self, version: str) -> None:
        """Take a version out of the store. Raises UnknownIndex, and IndexInUse for the one that CURRENT names."""


class Opens(Protocol):
    """What an entry of `openbook.stores` is: `count` receives the bytes that come from the store."""

    def __call__(self, url: str, settings: Settings, count: Count) -> RemoteVersions: ...


def store_of(settings: Settings, count: Count = ignore) -> IndexStore:
    """The versions that the settings name; `count` receives the bytes that come over a network.

    Raises SettingInvalid for an address that is none.
    """
    url = settings.indexes_url
    return IndexStore(Path(settings.indexes), settings) if url is None else remote_store(url, settings, count)


def folder_of(settings: Settings, command: str) -> IndexStore:
    """The folder that a command changes. Raises SettingInvalid where the settings name another store."""
    if settings.indexes_url is not None:
        raise SettingInvalid(
            setting="--indexes",
            reason=f"{command} works on a folder. Name one, and bring the version to the store afterwards: "
            f"openbook index push VERSION {settings.indexes_url}",
        )
    return IndexStore(Path(settings.indexes), settings)


def remote_store(url: str, settings: Settings, count: Count = ignore) -> RemoteVersions:
    """The store at an address such as s3://bucket/prefix.

    Raises SettingInvalid for an address that is none, or of a scheme that no plug-in opens.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        # not said again: it may hold a secret
        reason = "the address of a store holds no user, no query and no fragment; credentials come from elsewhere"
        raise SettingInvalid(setting="OPENBOOK_INDEXES", reason=reason)
    schemes = extensions(STORES)
    if parts.scheme not in schemes or not (parts.netloc or parts.path.strip("/")):
        known = ", ".join(f"{scheme}://" for scheme in schemes)
        raise SettingInvalid(setting="OPENBOOK_INDEXES", reason=f"{url} is no address of a store: {known}")
    opens: Opens = schemes[parts.scheme].load()
    return opens(url.rstrip("/"), settings, count)
