"""Which source a name, a file or a folder is."""

from pathlib import Path

from service.errors import SourceInvalid
from service.offline.sources.demo import DEMO_YEARS, EncyclopediaSource
from service.offline.sources.json_lines import JsonLinesSource
from service.offline.sources.passage_table import PassageTableSource
from service.offline.sources.source import PassageSource


def open_source(what: str, *, snapshot_date: str | None = None, licence: str = "") -> PassageSource:
    """The source that `what` names: wiki-2016, wiki-2018, or a file .jsonl or .tsv, either also with .gz.

    `snapshot_date` and `licence` are what the manifest is to say of a file; the demo's are its own.
    Raises SourceInvalid for a file that is not there or of a kind that is not read.
    """
    if what in DEMO_YEARS:
        return EncyclopediaSource(what)
    path = Path(what)
    kinds = {".jsonl": JsonLinesSource, ".tsv": PassageTableSource}
    kind = kinds.get(Path(path.name.removesuffix(".gz")).suffix)
    if kind is None:
        demo = ", ".join(DEMO_YEARS)
        raise SourceInvalid(source=what, reason=f"neither one of {demo} nor a file .jsonl or .tsv (or either .gz)")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    return kind(path, snapshot_date=snapshot_date, licence=licence)
