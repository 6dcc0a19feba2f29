"""A MediaWiki dump as a source of passages: blocks of bytes, pages cut out of them, wikitext read in processes."""

from pathlib import Path

from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import PassageSource, refuse
from openbook.indexing.splitting import Split


def open_dump(
    path: Path, *, snapshot_date: str | None, licence: str, split: Split | None, url_template: str | None
) -> PassageSource:
    """The dump. Its header and name say date and licence if the caller does not.

    Raises SourceInvalid without the extra dump, and for a file that is no dump; SettingInvalid for a `url_template`.
    """
    refuse(path, url_template=url_template)
    try:
        from openbook.plugins.dump.source import WikipediaDumpSource
    except ModuleNotFoundError as error:
        raise SourceInvalid(source=str(path), reason="a dump needs an extra: pip install 'openbook[dump]'") from error
    return WikipediaDumpSource(path, snapshot_date=snapshot_date, licence=licence, split=split or "words")
