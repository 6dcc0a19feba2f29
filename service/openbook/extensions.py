"""What other installed packages add, found by their entry points: docs/plugins.md has them."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

COMMANDS, SOURCES, CHECKPOINTS = "openbook.commands", "openbook.sources", "openbook.checkpoints"
FILES, STORES, ROUTERS, ENGINES = "openbook.files", "openbook.stores", "openbook.routers", "openbook.engines"
VECTORS, SETTINGS, ANSWERS = "openbook.vectors", "openbook.settings", "openbook.answers"
GENERATORS, KINDS, GUARDS = "openbook.generators", "openbook.kinds", "openbook.guards"
MIDDLEWARE = "openbook.middleware"


def extensions(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, sorted."""
    return {one.name: one for one in sorted(entry_points(group=group), key=lambda one: one.name)}


def checkpoint_folder(name: str) -> Path | None:
    """The folder of the installed checkpoint package of this name; None where there is none."""
    found = extensions(CHECKPOINTS).get(name)
    spec = None if found is None else find_spec(found.module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
