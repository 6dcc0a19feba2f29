"""Which pages are articles, and what stops at a page that is none."""

import time

import pytest

from openbook.indexing.splitting import Section
from openbook.plugins.dump.page import DumpArticle, read_article
from tests.openbook.plugins.dump.dumps import page


def read(data: str | bytes) -> DumpArticle | str:
    return read_article(data.encode() if isinstance(data, str) else data)


def test_an_article_has_the_id_and_title_of_its_page_not_of_its_revision() -> None:
    assert read(page(12, "Rock & roll", "A '''genre''' & more.")) == DumpArticle(
        "12", "Rock & roll", (Section("A genre & more."),), "1012"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (page(1, "A", "#REDIRECT [[B]]", redirect="B"), "redirect"),
        (page(1, "A", "#weiterleitung [[B]]"), "redirect"),
        (page(1, "Talk:A", "words", ns=1), "other namespace"),
        (page(1, "A.js", "words", model="javascript"), "no wikitext"),
        (page(1, "Mercury (disambiguation)", "words"), "disambiguation"),
        (page(1, "Mercury", "may be: {{Disambiguation|planets}}"), "disambiguation"),
        (page(1, "Mercury", "may be: {{place name disambiguation}}"), "disambiguation"),
        (page(1, "Mercury", "may be: {{hndis|Mercury}}"), "disambiguation"),
        (page(1, "Mercury", "may be: __DISAMBIG__"), "disambiguation"),
        (page(1, "Mercury", "may be [[Category:Disambiguation pages]]"), "disambiguation"),
        (page(1, "List of rivers", "words"), "list"),
        (page(1, "Outline of chess", "words"), "list"),
        (page(1, "A", ""), "empty"),
        (page(1, "A", "{{Infobox|a=b}}\n* a list"), "empty"),
        (page(1, "", "words"), "broken"),
        (page(1, "A", "words").replace("<id>1</id>", ""), "broken"),
        (page(1, "A", "words").replace("</revision>", ""), "broken"),
        (page(1, "A", "a \x08 b"), "broken"),
        (page(1, "A", "a &bomb; b").replace("&amp;", "&"), "broken"),
        (page(1, "A", "words").replace("words", "<a>" * 1000), "broken"),
        (page(1, "A", "words").encode().replace(b"words", b"\xff\xfe"), "undecodable"),
    ],
)
def test_every_other_page_is_left_out_for_a_reason(text: str | bytes, expected: str) -> None:
    assert read(text) == expected


def test_a_link_that_needs_disambiguation_leaves_an_article_an_article() -> None:
    text = "He met [[Mercury]]{{disambiguation needed|date=May 2018}} there."
    assert read(page(1, "A", text)) == DumpArticle("1", "A", (Section("He met Mercury there."),), "1001")


def test_entities_of_a_document_type_are_never_there_to_be_expanded() -> None:
    """A document type within what is cut out is no XML; one before it is not part of it."""
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f"<page><!DOCTYPE page [<!ENTITY e0 'ha'>{levels}]><title>&e11;</title></page>"
    begun = time.process_time()
    assert read(bomb) == "broken"
    assert time.process_time() - begun < 1


def test_of_several_revisions_the_last_is_read() -> None:
    text = page(1, "A", "old").replace("</revision>", "</revision><revision><text>new</text></revision>")
    assert read(text) == DumpArticle("1", "A", (Section("new"),), "1001")
