"""The two shipped texts are frozen; what is written of other facts and of an invented world is as well-formed."""

import gzip
import json

from openbook_lab.encyclopedia import Article
from tests.places import ROOT

TEXTS = ROOT / "checkpoints" / "openbook-mini" / "texts"


def test_it_writes_the_texts_that_are_shipped_byte_for_byte(book: list[Article], year: int) -> None:
    """Other words need new texts, new demo indexes, and a checkpoint that is trained on them."""
    lines = (
        json.dumps({"id": one.article_id, "title": one.title, "text": one.text}, ensure_ascii=False) + "\n"
        for one in book
    )
    assert gzip.decompress((TEXTS / f"wiki-{year}.jsonl.gz").read_bytes()).decode() == "".join(lines)
