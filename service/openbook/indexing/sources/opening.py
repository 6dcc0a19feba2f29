"""Opens the source that a name, a file or a folder stands for."""

from pathlib import Path

from openbook.errors import SourceInvalid
from openbook.extensions import SOURCES, extensions
from openbook.indexing.sources.folder import FolderSource
from openbook.indexing.sources.lines import JsonLinesSource, PassageTableSource
from openbook.indexing.sources.source import PassageSource, refuse
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.indexing.splitting import Split

FILES = ".jsonl or .tsv (or either .gz)"


def named_sources() -> tuple[str, ...]:
    """Sources with a name of their own, which is also the name of the version built from them."""
    return tuple(name for name in extensions(SOURCES) if not name.startswith("."))


def _endings() -> tuple[str, ...]:
    """Endings of files that plug-ins read as a source."""
    return tuple(name for name in extensions(SOURCES) if name.startswith("."))


def open_source(
    what: str,
    *,
    snapshot_date: str | None = None,
    licence: str = "",
    split: Split | None = None,
    url_template: str | None = None,
) -> PassageSource:
    """The source that `what` names: one that a package brings (wiki-2016, wiki-2018), a file (JSON lines, DPR's
    table, either also with .gz, or one with an ending that a plug-in reads), or a folder of texts.

    The manifest of a file or folder gets `snapshot_date` and `licence`, unless the source has its own. `split` is how
    articles are cut, None as their source does by itself; `url_template` makes the address of what has none: see
    `UrlTemplate`. The plug-in of an ending is called with the path, and with these four by name. Raises SourceInvalid
    for a missing file, for one of an unknown kind, and for a source whose package is not installed; SettingInvalid for
    a `split` or a `url_template` that the source has no use for.
    """
    extension = None if what.startswith(".") else extensions(SOURCES).get(what)
    if extension is not None:
        refuse(what, split=split, url_template=url_template)
        opened: PassageSource = extension.load()(what)
        return opened
    path = Path(what)
    if what.strip() and path.is_dir():
        template = None if url_template is None else UrlTemplate(url_template, ("title", "path"))
        return FolderSource(path, snapshot_date=snapshot_date, licence=licence, split=split, url_template=template)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    ending = max((one for one in _endings() if path.name.endswith(one)), key=len, default=None)
    if ending is None and suffix not in (".jsonl", ".tsv"):
        kinds = " or ".join([FILES, *_endings()])
        known = ", ".join([*named_sources(), f"a file {kinds}", "a folder"])
        raise SourceInvalid(source=what, reason=f"is none of {known}")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    if ending is not None:
        given = {"snapshot_date": snapshot_date, "licence": licence, "split": split, "url_template": url_template}
        read: PassageSource = extensions(SOURCES)[ending].load()(path, **given)
        return read
    template = None if url_template is None else UrlTemplate(url_template, ("title", "id"))
    if suffix == ".tsv":
        refuse(what, split=split)
        return PassageTableSource(path, snapshot_date=snapshot_date, licence=licence, url_template=template)
    return JsonLinesSource(path, snapshot_date=snapshot_date, licence=licence, split=split, url_template=template)
