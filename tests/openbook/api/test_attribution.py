"""What the terms of a text ask to be shown comes with every passage; a manifest says what the index is."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny
from tests.openbook.api.conftest import client_of
from tests.openbook.api.test_search import BODIES

ATTRIBUTION = "From an encyclopedia, by its contributors"


@pytest.mark.parametrize("call", BODIES)
def test_every_answer_carries_the_attribution_of_its_own_version(
    indexes_folder: Path, settings: Settings, engine: RagEngine, call: str
) -> None:
    publish_tiny(IndexStore(indexes_folder), "tiny-2016", attribution=ATTRIBUTION, replace=True)
    with client_of(create_app(settings, engine=engine)) as client:
        found = client.post(call, json=BODIES[call]).json()
        if call == "/compare":
            assert [one["attribution"] for one in found["answers"]] == [ATTRIBUTION, ""]
        else:
            assert found["attribution"] == ATTRIBUTION
            assert client.post(call, json={**BODIES[call], "index": "tiny-2018"}).json()["attribution"] == ""
        assert client.get("/index/tiny-2016").json()["attribution"] == ATTRIBUTION


def test_a_manifest_says_what_the_index_is_and_why(client: TestClient) -> None:
    found = client.get("/index/tiny-2016").json()
    assert (found["factory"], found["search"], found["index_reason"]) == ("Flat", {}, "flat was asked for")
