"""Which source a name, a file or a folder is."""

from pathlib import Path

from openbook.errors import SourceInvalid
from openbook.extensions import SOURCES, extensions
from openbook.indexing.sources.folder import FolderSource
from openbook.indexing.sources.json_lines import JsonLinesSource
from openbook.indexing.sources.passage_table import PassageTableSource
from openbook.indexing.sources.source import PassageSource
from openbook.indexing.sources.wiki_vital import WIKI_VITAL, WikiVitalSource

FILES = ".jsonl or .tsv (or either .gz), .xml or .xml.bz2"


def named_sources() -> tuple[str, ...]:
    """The sources that have a name of their own, which is also the name of the version built from them."""
    return (*extensions(SOURCES), WIKI_VITAL)


def open_source(what: str, *, snapshot_date: str | None = None, licence: str = "", processes: int = 1) -> PassageSource:
    """The source that `what` names: one that a package brings (wiki-2016, wiki-2018), wiki-vital, a file (JSON lines,
    DPR's table, either also with .gz, a MediaWiki dump .xml or .xml.bz2), or a folder of .txt and .md.

    `snapshot_date` and `licence` are what the manifest is to say of a file or folder; the demo's are its own, and a
    dump knows both when they are not given. A dump is read by `processes` processes.
    Raises SourceInvalid for a file that is not there or of a kind that is not read, and for wiki-vital when the
    package that holds it is not installed.
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
        # the parser of wikitext is wanted for nothing else
        from openbook.indexing.sources.dump.source import WikipediaDumpSource

        return WikipediaDumpSource(path, snapshot_date=snapshot_date, licence=licence, processes=processes)
    kind = JsonLinesSource if suffix == ".jsonl" else PassageTableSource
    return kind(path, snapshot_date=snapshot_date, licence=licence)
