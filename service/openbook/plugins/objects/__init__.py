"""Versions in an object store: S3, Google Cloud Storage, Azure, a folder, memory."""

from collections.abc import Callable

from openbook.settings import Settings
from openbook.storage.opening import RemoteVersions


def open_with_fsspec(url: str, settings: Settings, count: Callable[[int], None]) -> RemoteVersions:
    """The versions at an address that fsspec opens."""
    from openbook.plugins.objects.fsspec_store import FsspecStore
    from openbook.plugins.objects.remote_store import RemoteStore

    return RemoteStore(FsspecStore(url), settings, count)
