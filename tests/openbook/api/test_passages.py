"""GET /passages: a passage within its document, for programs and for readers."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from openbook.entities import Passage
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import RICH_FORMAT
from openbook.storage.passages import PassageFields
from tests.fixtures.indexes import publish_tiny, tiny_vectors
from tests.openbook.api.conftest import PINNED, MakeClient, ended_with

HOSTILE = "a/b <img src=x>.pdf"
PAGES = (("page", 3), ("path", HOSTILE))
BOOK = [
    Passage(f"{HOSTILE}#0", "Guide", "The first."),
    Passage(f"{HOSTILE}#10", "Guide", "Not beside it."),
    Passage(f"{HOSTILE}#1", 'Guide "&"', "<script>alert(1)</script>", section="<b> > C", metadata=PAGES),
    Passage("41", "Peru", "Lima is the capital."),
    Passage("42", "Peru", "Its president is elected.", url="https://wiki.example/Peru?a=1&b=2"),
    Passage("43", "Chile", "Santiago."),
    Passage(f"{HOSTILE}#2", "Guide", "The last."),
]


@pytest.fixture
def shelf(make_client: MakeClient, indexes_folder: Path) -> TestClient:
    fields = PassageFields(RICH_FORMAT, {"page": "integer", "path": "string"})
    vectors = tiny_vectors(BOOK)
    store = IndexStore(indexes_folder)
    publish_tiny(
        store, "tiny-2016", as_version="book", passages=BOOK, vectors=vectors, fields=fields, attribution="A&B"
    )
    return make_client(index="book", residents=1)


def in_place(client: TestClient, passage_id: str, accept: str = "*/*", version: str = "book") -> object:
    return client.get(f"/passages/{version}/{quote(passage_id, safe='')}", headers={"accept": accept})


def test_a_passage_stands_between_those_of_its_document(shelf: TestClient) -> None:
    found = in_place(shelf, f"{HOSTILE}#1").json()
    assert found["passage"] | {"metadata": None} == {
        **{"passage_id": f"{HOSTILE}#1", "title": 'Guide "&"', "text": "<script>alert(1)</script>", "url": None},
        **{"section": "<b> > C", "published": None, "metadata": None},
    }
    assert (found["before"]["text"], found["after"]["text"], found["page"]) == ("The first.", "The last.", 3)
    assert (found["index"]["version"], found["attribution"]) == ("book", "A&B")
    by_title = in_place(shelf, "42").json()
    assert (by_title["before"]["passage_id"], by_title["after"], by_title["page"]) == ("41", None, None)
    first = in_place(shelf, f"{HOSTILE}#0").json()
    assert (first["before"], first["after"]["passage_id"]) == (None, f"{HOSTILE}#1")


def test_a_browser_gets_a_page_in_which_every_text_is_text(shelf: TestClient) -> None:
    response = in_place(shelf, f"{HOSTILE}#1", "text/html,application/xhtml+xml,*/*;q=0.8")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    page = response.text
    assert "<mark>&lt;script&gt;alert(1)&lt;/script&gt;</mark>" in page
    assert all(one in page for one in ("The first.", "The last.", "page 3", "A&amp;B"))
    assert not re.findall(r"<script(?! src=\"/static/)|<img src=x|<b>", page)
    assert f'href="/passages/book/{quote(HOSTILE, safe="")}%232"' in page
    assert 'href="https://wiki.example/Peru?a=1&amp;b=2"' in in_place(shelf, "42", "text/html").text


def test_what_is_not_there_is_named_with_its_version(shelf: TestClient) -> None:
    unknown = in_place(shelf, "44", "text/html")
    assert ended_with(unknown) == (404, "unknown_passage")
    assert unknown.json()["detail"] == "The index 'book' has no passage '44'."
    assert ended_with(in_place(shelf, "44", version="wiki-1999")) == (404, "unknown_index")
    assert "wiki-1999" in in_place(shelf, "44", version="wiki-1999").json()["detail"]
    assert ended_with(in_place(shelf, "peru", version="tiny-2018")) == (409, "index_not_resident")


def test_it_takes_a_place_in_the_queue_as_a_question_does(make_client: MakeClient) -> None:
    client = make_client(max_queue=0, timeout_s=1e-9)
    assert ended_with(in_place(client, "peru", version="tiny-2016")) == (504, "deadline_exceeded")
    passage = make_client().post("/retrieve", json=PINNED["/retrieve"]).json()["passages"][0]
    assert set(passage) > {"passage_id", "title"}
