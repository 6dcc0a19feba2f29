"""openbook index push and pull"""

from typing import Annotated

from openbook.cli.consoles import say, size
from openbook.cli.options import argument, option, with_options
from openbook.cli.progress import StageBars
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.opening import folder_of, remote_store, store_of
from openbook.storage.vector_store import kind_of, vector_store


@with_options
def pull(
    settings: Annotated[Settings, "indexes", "cache"],
    version: str | None = argument("VERSION", "The version; without it, the one that CURRENT names.", default=None),
) -> None:
    """Bring a version of the store --indexes to this machine, so that a service here need not wait for it.

    You may stop it at any time: the same command, or a service, goes on where it was.
    """
    store = store_of(settings)
    if settings.indexes_url is None:
        raise SettingInvalid(setting="--indexes", reason=f"{store.folder} is a folder: there is nothing to pull")
    version = version or store.default_version()
    if store.is_here(version):
        say(f"{version} is here already")
        return
    with StageBars() as bars:
        store.fetch(version, lambda share: bars.show("pull", share))
    say(f"pulled {version} to {store.folder}")


@with_options
def push(
    settings: Annotated[Settings, "indexes"],
    version: str = argument("VERSION", "The version, in the folder --indexes."),
    url: str = argument("URL", "The store, such as s3://bucket/prefix; or a database of vectors."),
    force: bool = option(False, "Replace a version of this name in the store; of --name, in the folder."),
    name: str | None = option(
        None, "With a database: the version that has its vectors there; without it VERSION-KIND."
    ),
) -> None:
    """Bring a version of the folder to a store of versions, from where services pull it.

    To a database go the vectors alone. The folder gets one more version, with the same passages and BM25, that is
    searched in the database; push that one to a store where services have no folder in common.

    Every byte is compared with the manifest before the first is sent. Services see the version once all of it is there.
    You may stop it at any time: the same command goes on with the first file that is not there. The first version of a
    store becomes CURRENT, on which services start. Credentials come from the environment, as the store's library reads
    it: AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL ...
    """
    store = folder_of(settings, "openbook index push")
    info = store.info(version)
    kind = kind_of(url)
    if kind is not None:
        name = name or f"{version}-{kind}"
        database = vector_store(kind, settings)
        with StageBars() as bars:
            made = database.push(store, version, url, name, lambda share: bars.show("push", share), replace=force)
        say(f"pushed the vectors of {version}; {name} is searched in {made.collection.url if made.collection else url}")
        return
    if name is not None:
        raise SettingInvalid(setting="--name", reason="goes with a database: in a store a version keeps its name")
    there = remote_store(url, settings)
    with StageBars() as bars:
        sent = there.receive(store, version, lambda share: bars.show("push", share), replace=force)
    n_bytes = sum(file.bytes for file in info.files.values())
    say(f"pushed {version}, {size(n_bytes)}" if sent else f"{version} is there already")
    if there.current_mark() is None:
        there.set_current(version)
        say(f"{version} is CURRENT there: services start with it")
