"""What the page says before anybody asks: the book, its documents, and questions of which none is made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.openbook.api.conftest import ADMIN, client_of
from tests.waiting import until


def complete(client: TestClient) -> dict[str, Any]:
    until(lambda: client.get("/welcome").json()["complete"])
    return dict(client.get("/welcome").json())


def test_the_book_says_how_many_documents_it_has_and_lists_them(client: TestClient) -> None:
    passages = tiny_passages("tiny-2016")
    titles = sorted({one.title for one in passages}, key=str.casefold)
    assert client.get("/welcome").json()["documents"] == len(titles)
    listed = client.get("/welcome/documents").json()
    assert [one["title"] for one in listed["documents"]] == titles
    assert (listed["version"], listed["total"]) == ("tiny-2016", len(titles))
    wanted = titles[0]
    few = client.get("/welcome/documents", params={"contains": wanted.upper()}).json()
    assert [one["title"] for one in few["documents"]] == [one for one in titles if wanted in one]
    first = few["documents"][0]
    assert client.get(f"/passages/tiny-2016/{first['passage_id']}").status_code == 200


def test_a_checkpoint_that_cannot_tell_an_answer_from_a_guess_offers_no_question(client: TestClient) -> None:
    assert complete(client)["questions"] == []


def test_what_is_offered_is_answered_and_each_version_has_its_own(settings: Settings) -> None:
    passages = [replace(one, text=f"Peru is a country. {one.text}") for one in tiny_passages("tiny-2016")]
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2016", passages=passages, replace=True)
    checkpoint = load_checkpoint(settings.checkpoint, bare=True)
    sure = RagEngine(replace(checkpoint, facts=replace(checkpoint.facts, max_no_answer=1.0)))
    with client_of(create_app(settings, engine=sure)) as client:
        for question in complete(client)["questions"]:
            answer = client.post("/answer", json={"question": question}).json()
            assert answer["no_answer"] <= 0.5
            assert answer["evidence"]
        client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
        assert complete(client)["version"] == "tiny-2018"
