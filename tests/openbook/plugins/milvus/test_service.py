"""A service whose live version has its vectors in a database, which fails and comes back."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.plugins.milvus import collection as milvus
from openbook.plugins.milvus.collection import Collection
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.databases import addresses
from tests.fixtures.indexes import publish_tiny
from tests.openbook.api.conftest import ADMIN, BODIES, PINNED, client_of, ended_with
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def indexes_folder(milvus_indexes: Path, tmp_path: Path) -> Path:
    """tiny-2016, which is live, and tiny-2018 in a database; tiny-files is in files."""
    folder = Path(shutil.copytree(milvus_indexes, tmp_path / "indexes"))
    publish_tiny(IndexStore(folder), "tiny-2016", as_version="tiny-files")
    return folder


@pytest.fixture
def settings(settings: Settings, indexes_folder: Path) -> Settings:
    return settings.model_copy(update={"milvus_databases": addresses(indexes_folder)})


class Away:
    """While it is set, the database answers nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set = False
        ask = Collection.ask

        def answer(collection: Collection, call: str, **named: Any) -> Any:
            if self.set:
                collection._fail(TimeoutError("at db:19530"))
            return ask(collection, call, **named)

        monkeypatch.setattr(Collection, "ask", answer)
        monkeypatch.setattr(milvus, "PAUSE_S", 0.05)
        for pause in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
            monkeypatch.setattr(f"openbook.application.first_index.{pause}", 0.05)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    return Away(monkeypatch)


def without_seconds(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("seconds", "index", "answers")}


def test_answers_are_those_of_files(client: TestClient) -> None:
    assert client.post("/index/load", json={"version": "tiny-files"}, headers=ADMIN).status_code == 200
    for path, body in PINNED.items():
        there, files = (
            without_seconds(client.post(path, json=body | {"index": version}).raise_for_status().json())
            for version in ("tiny-2016", "tiny-files")
        )
        assert list(there) == list(files)
        for passage, other in zip(there["passages"], files["passages"], strict=True):
            assert passage["passage_id"] == other["passage_id"]
            assert passage["doc_score"] == pytest.approx(other["doc_score"], rel=1e-12)


def test_while_the_database_is_away_questions_are_refused_and_files_answer(client: TestClient, away: Away) -> None:
    assert client.post("/index/load", json={"version": "tiny-files"}, headers=ADMIN).status_code == 200
    assert client.get("/readyz").status_code == 200
    away.set = True
    for path, body in BODIES.items():
        body = body | {"versions": ["tiny-2016", "tiny-files"]} if path == "/compare" else body
        refused = client.post(path, json=body)
        assert ended_with(refused) == (503, "index_unreachable"), path
        assert "retry-after" in refused.headers
        assert "19530" not in refused.text
    not_ready = client.get("/readyz")
    assert ended_with(not_ready) == (503, "not_ready")
    assert (
        "The database with the vectors of index 'tiny-2016' does not answer: TimeoutError" in not_ready.json()["detail"]
    )
    # no other version answers in its place, but one that is named does; and words are searched here
    named = client.post("/answer", json=PINNED["/answer"] | {"index": "tiny-files"}).json()
    assert named["index"]["version"] == "tiny-files"
    by_words = client.post("/retrieve", json=PINNED["/retrieve"] | {"retriever": "bm25"})
    assert by_words.json()["index"]["version"] == "tiny-2016"
    # a swap to what is there fails and changes nothing, one to files works
    refused = client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
    assert ended_with(refused) == (503, "index_unreachable")
    assert client.get("/index").json()["live"]["version"] == "tiny-2016"
    assert client.post("/index/swap", json={"version": "tiny-files"}, headers=ADMIN).status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_start_without_the_database_says_why_and_keeps_trying(
    settings: Settings, engine: RagEngine, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    away.set = True
    with client_of(create_app(settings, engine=engine)) as client:
        until(lambda: "does not answer: TimeoutError" in client.get("/readyz").json().get("detail", ""))
        assert ended_with(client.get("/readyz")) == (503, "not_ready")
        away.set = False
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/readyz").json()["index"]["version"] == "tiny-2016"
