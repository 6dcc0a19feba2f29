"""One question, several versions: with the two tiny books."""

import logging
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.api.conftest import BOTH_KINDS, MakeClient, ended_with, without_seconds

VERSIONS = ["tiny-2018", "tiny-2016"]
PARTING = {"question": "who is the president of peru ?", "n_docs": 12, "num_beams": 2, "max_new_tokens": 8}


@BOTH_KINDS
def test_each_version_answers_as_it_does_when_it_is_asked_alone(reader: TestClient) -> None:
    body = reader.post("/compare", json={**PARTING, "versions": VERSIONS}).raise_for_status().json()
    assert list(body) == ["question", "agree", "groups", "answers"]
    assert body["question"] == PARTING["question"]
    alone = [reader.post("/answer", json={**PARTING, "index": version}).json() for version in VERSIONS]
    assert [without_seconds(one) for one in body["answers"]] == [without_seconds(one) for one in alone]
    for answer, version in zip(body["answers"], VERSIONS, strict=True):
        assert answer["index"]["version"] == version
        assert {one["text"] for one in answer["passages"]} == {passage.text for passage in tiny_passages(version)}


def test_the_groups_say_which_version_says_what(indexes_folder: Path, make_client: MakeClient) -> None:
    # what is least like the question in the one book is most like it in the other
    vectors = -tiny_vectors(tiny_passages("tiny-2018"))
    publish_tiny(IndexStore(indexes_folder), "tiny-2018", vectors=vectors, replace=True)
    body = make_client().post("/compare", json={**PARTING, "n_docs": 3, "versions": VERSIONS}).json()
    texts = [answer["answer"] for answer in body["answers"]]
    assert texts[0] != texts[1]
    assert body["agree"] is False
    assert body["groups"] == [
        {"answer": text, "versions": [version]} for text, version in zip(texts, VERSIONS, strict=True)
    ]


@pytest.mark.parametrize(
    ("changed", "ended"),
    [
        *(({"versions": ["tiny-2016", wrong]}, (404, "unknown_index")) for wrong in ("wiki-1999", "../tiny-2018")),
        *(({"n_docs": many}, (422, "invalid_request")) for many in (13, 51)),
        ({"timeout_s": 1e-9}, (504, "deadline_exceeded")),
    ],
)
def test_a_comparison_is_refused_as_a_whole(
    reader: TestClient, changed: dict[str, object], ended: tuple[int, str]
) -> None:
    assert ended_with(reader.post("/compare", json=PARTING | {"versions": VERSIONS} | changed)) == ended


def test_the_access_log_names_all_the_versions(reader: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "openbook.access"):
        reader.post("/compare", json={**PARTING, "versions": VERSIONS})
    facts = next(vars(record)["facts"] for record in caplog.records if record.name == "openbook.access")
    assert (facts["route"], facts["index"]) == ("/compare", "tiny-2018,tiny-2016")
    assert facts["generate_s"] > 0
    assert "peru" not in str([vars(record) for record in caplog.records])
