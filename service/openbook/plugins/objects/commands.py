"""openbook index pull"""

from typing import Annotated

from openbook.cli.consoles import say
from openbook.cli.options import argument, with_options
from openbook.cli.progress import StageBars
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.opening import store_of


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
