"""What other installed packages add, found by their entry points.

| group | name | value |
|---|---|---|
| `openbook.commands` | `train`, or `checkpoint.average` below a group | a function or a `typer.Typer` |
| `openbook.sources` | `wiki-2016` | makes the passage source of that name: called with the name |
| | `.xml.bz2` | makes the passage source of a file with that ending: see `indexing.sources.opening` |
| `openbook.files` | `.pdf` | an `openbook.indexing.sources.folder_file.FileReader`: reads such a file of a folder |
| `openbook.checkpoints` | `openbook-mini` | a package that is a checkpoint folder, with ready versions in `indexes/` |
| `openbook.stores` | `s3` | an `openbook.storage.object_store.ObjectStore`: called with an address of that scheme |
| `openbook.vectors` | type of an index | an `openbook.storage.vector_store.VectorStore`: called with the settings |
| `openbook.settings` | any | a class of settings, whose fields are settings of the service too |
| `openbook.routers` | `openai` | an `openbook.api.calls.Routes` |
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

COMMANDS, SOURCES, CHECKPOINTS = "openbook.commands", "openbook.sources", "openbook.checkpoints"
FILES, STORES, ROUTERS = "openbook.files", "openbook.stores", "openbook.routers"
VECTORS, SETTINGS = "openbook.vectors", "openbook.settings"


def extensions(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, sorted."""
    return {one.name: one for one in sorted(entry_points(group=group), key=lambda one: one.name)}


def checkpoint_folder(name: str) -> Path | None:
    """The folder of the installed checkpoint package of this name; None where there is none."""
    found = extensions(CHECKPOINTS).get(name)
    spec = None if found is None else find_spec(found.module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
