"""openbook demo"""

from pathlib import Path

from openbook.cli.consoles import messages
from openbook.cli.options import takes_settings
from openbook.cli.serve import OPTIONS, start
from openbook.errors import SettingInvalid
from openbook.extensions import checkpoint_folder
from openbook.indexing.publishing import publish_copy
from openbook.settings import DEFAULT_CHECKPOINT, Settings
from openbook.storage.index_store import IndexStore

# The first becomes CURRENT where there is none.
DEMO_VERSIONS = ("wiki-2016", "wiki-2018")


@takes_settings(*OPTIONS)
def demo(settings: Settings) -> None:
    """Serve the demo: openbook-mini over a small encyclopedia of 2016, with that of 2018 ready to be swapped in.

    Copies the two versions from the package openbook-mini to --indexes if they are missing, then is serve --demo.
    """
    provide(IndexStore(settings.indexes))
    start(settings, demo=True)


def provide(store: IndexStore) -> None:
    """Have the demo's versions in the store. Raises SettingInvalid where they are neither there nor in a package."""
    there = store.versions()
    for version in DEMO_VERSIONS:
        if version not in there:
            publish_copy(store, _ready(version))
            messages().print(f"copied {version} to {store.folder}", markup=False)
    if store.current() is None:
        store.set_current(DEMO_VERSIONS[0])


def _ready(version: str) -> Path:
    """The folder of a version that the package of the default checkpoint brings."""
    package = checkpoint_folder(DEFAULT_CHECKPOINT)
    folder = None if package is None else package / "indexes" / version
    if folder is None or not folder.is_dir():
        raise SettingInvalid(setting=version, reason="comes with another package: pip install 'openbook[mini]'")
    return folder
