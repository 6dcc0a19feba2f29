"""Opens the source that a name, a file or a folder stands for."""

from pathlib import Path

from openbook.errors import SourceInvalid
from openbook.extensions import SOURCES, extensions
from openbook.indexing.sources.folder import FolderSource
from openbook.indexing.sources.lines import JsonLinesSource, PassageTableSource
from openbook.indexing.sources.source import PassageSource
from openbook.indexing.sources.wiki_vital import WIKI_VITAL, WikiVitalSource

FILES = ".jsonl or .tsv (or either .gz), .xml or .xml.bz2"


def named_sources() -> tuple[str, ...]:
    """Sources with a name of their own, which is also the name of the version built from them."""
    return (*extensions(SOURCES), WIKI_VITAL)


def open_source(what: str, *, snapshot_date: str | None = None, licence: str = "") -> PassageSource:
    """The source that `what` names: one that a package brings (wiki-2016, wiki-2018), wiki-vital, a file (JSON lines,
    DPR's table, either also with .gz, a MediaWiki dump .xml or .xml.bz2), or a folder of .txt and .md.

    The manifest of a file or folder gets `snapshot_date` and `licence`; the demo has its own, and a dump's header and
    name give both if the caller does not. Raises SourceInvalid for a missing file, for one of an unknown kind, and for
    wiki-vital when its package is not installed.
    """
    extension = extensions(SOURCES).get(what)
    if extension is not None:
        opened: PassageSource = extension.load()(what)
        return opened
    if what == WIKI_VITAL:
        return WikiVitalSource(snapshot_date=snapshot_date)
    path = Path(what)
    if what.strip() and path.is_dir():
        return FolderSource(path, snapshot_date=snapshot_date, licence=licence)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    dump = Path(path.name.removesuffix(".bz2")).suffix == ".xml"
    if not dump and suffix not in (".jsonl", ".tsv"):
        names = ", ".join(named_sources())
        raise SourceInvalid(source=what, reason=f"neither one of {names} nor a file {FILES} nor a folder")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    if dump:
        # only dumps need the parser of wikitext
        try:
            from openbook.indexing.sources.dump.source import WikipediaDumpSource
        except ModuleNotFoundError as error:
            raise SourceInvalid(source=what, reason="a dump needs an extra: pip install 'openbook[dump]'") from error
        return WikipediaDumpSource(path, snapshot_date=snapshot_date, licence=licence)
    kind = JsonLinesSource if suffix == ".jsonl" else PassageTableSource
    return kind(path, snapshot_date=snapshot_date, licence=licence)
