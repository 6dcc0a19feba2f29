"""Opens the source that a name, a file or a folder stands for."""

from pathlib import Path

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.extensions import SOURCES, extensions
from openbook.indexing.sources.folder import FolderSource
from openbook.indexing.sources.lines import JsonLinesSource, PassageTableSource
from openbook.indexing.sources.source import PassageSource
from openbook.indexing.sources.url_template import SETTING as URL_TEMPLATE
from openbook.indexing.sources.url_template import UrlTemplate
from openbook.indexing.sources.wiki_vital import WIKI_VITAL, WikiVitalSource
from openbook.indexing.splitting import Split

FILES = ".jsonl or .tsv (or either .gz), .xml or .xml.bz2"


def named_sources() -> tuple[str, ...]:
    """Sources with a name of their own, which is also the name of the version built from them."""
    return (*extensions(SOURCES), WIKI_VITAL)


def open_source(
    what: str,
    *,
    snapshot_date: str | None = None,
    licence: str = "",
    split: Split | None = None,
    url_template: str | None = None,
) -> PassageSource:
    """The source that `what` names: one that a package brings (wiki-2016, wiki-2018), wiki-vital, a file (JSON lines,
    DPR's table, either also with .gz, a MediaWiki dump .xml or .xml.bz2), or a folder of texts.

    The manifest of a file or folder gets `snapshot_date` and `licence`; the demo has its own, and a dump's header and
    name give both if the caller does not. `split` is how articles are cut, None as their source does by itself;
    `url_template` makes the address of what has none: see `UrlTemplate`. Raises SourceInvalid for a missing file, for
    one of an unknown kind, and for wiki-vital when its package is not installed; SettingInvalid for a `split` or a
    `url_template` that the source has no use for.
    """
    extension = extensions(SOURCES).get(what)
    if extension is not None or what == WIKI_VITAL:
        _refuse(what, split, url_template)
        if extension is None:
            return WikiVitalSource(snapshot_date=snapshot_date)
        opened: PassageSource = extension.load()(what)
        return opened
    path = Path(what)
    if what.strip() and path.is_dir():
        template = None if url_template is None else UrlTemplate(url_template, ("title", "path"))
        return FolderSource(path, snapshot_date=snapshot_date, licence=licence, split=split, url_template=template)
    suffix = Path(path.name.removesuffix(".gz")).suffix
    dump = Path(path.name.removesuffix(".bz2")).suffix == ".xml"
    if not dump and suffix not in (".jsonl", ".tsv"):
        names = ", ".join(named_sources())
        raise SourceInvalid(source=what, reason=f"neither one of {names} nor a file {FILES} nor a folder")
    if not path.is_file():
        raise SourceInvalid(source=what, reason="there is no such file")
    if dump:
        _refuse(what, None, url_template)
        # only dumps need the parser of wikitext
        try:
            from openbook.indexing.sources.dump.source import WikipediaDumpSource
        except ModuleNotFoundError as error:
            raise SourceInvalid(source=what, reason="a dump needs an extra: pip install 'openbook[dump]'") from error
        return WikipediaDumpSource(path, snapshot_date=snapshot_date, licence=licence, split=split or "words")
    template = None if url_template is None else UrlTemplate(url_template, ("title", "id"))
    if suffix == ".tsv":
        _refuse(what, split, None)
        return PassageTableSource(path, snapshot_date=snapshot_date, licence=licence, url_template=template)
    return JsonLinesSource(path, snapshot_date=snapshot_date, licence=licence, split=split, url_template=template)


def _refuse(what: str, split: Split | None, url_template: str | None) -> None:
    """Raise SettingInvalid for what is given though the source has no use for it."""
    if split is not None:
        raise SettingInvalid(setting="--split", reason=f"{what} brings its passages as they are")
    if url_template is not None:
        raise SettingInvalid(setting=URL_TEMPLATE, reason=f"{what} says its addresses itself")
