"""Which source a name, a file or a folder is."""

from pathlib import Path

from service.errors import SourceInvalid
from service.offline.sources.demo import DEMO_YEARS, EncyclopediaSource
from service.offline.sources.folder import FolderSource
from service.offline.sources.json_lines import JsonLinesSource
from service.offline.sources.passage_table import PassageTableSource
from service.offline.sources.source import PassageSource
from service.offline.sources.wiki_vital import WIKI_VITAL, WikiVitalSource

FILES = ".jsonl or .tsv (or either .gz), .xml or .xml.bz2"


def open_source(what: str, *, snapshot_date: str | None = None, licence: str = "", processes: int = 1) -> PassageSource:
    """The source that `what` names: wiki-2016, wiki-2018, wiki-vital, a file (JSON lines, DPR's table, either also
    with .gz, a MediaWiki dump .xml or .xml.bz2), or a folder of .txt and .md.

    `snapshot_date` and `licence` are what the manifest is to say of a file or folder; the demo's are its own, and a
    dump knows both when they are not given. A dump is read by `processes` processes.
    Raises SourceInvalid for a file that is not there or of a kind that is not read, and for wiki-vital when the
    package that holds it is not installed.
    """
    if what in DEMO_YEARS:
        return EncyclopediaSource(what)
    if what == WIKI_VITAL:
        return WikiVitalSource(snapshot_date=snapshot_date)
    path = Path(what)
    if what.strip() and path.is_dir():
        return FolderSource(path, snapshot_date=snapshot_date, licence=licence)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    dump = Path(path.name.removesuffix(".bz2")).suffix == ".xml"
    if not dump and suffix not in (".jsonl", ".tsv"):
        names = ", ".join((*DEMO_YEARS, WIKI_VITAL))
        raise SourceInvalid(source=what, reason=f"neither one of {names} nor a file {FILES} nor a folder")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    if dump:
        # the parser of wikitext is wanted for nothing else
        from service.offline.sources.dump.source import WikipediaDumpSource

        return WikipediaDumpSource(path, snapshot_date=snapshot_date, licence=licence, processes=processes)
    kind = JsonLinesSource if suffix == ".jsonl" else PassageTableSource
    return kind(path, snapshot_date=snapshot_date, licence=licence)
