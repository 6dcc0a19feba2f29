"""One question, several versions: over a real socket, with the two tiny books."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.api.conftest import ADMIN, get, post, serving

VERSIONS = ["tiny-2018", "tiny-2016"]
PARTING = {"question": "who is the president of peru ?", "n_docs": 12, "num_beams": 2, "max_new_tokens": 8}


def without_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "seconds"}


def test_each_version_answers_as_it_does_when_it_is_asked_alone(server: str) -> None:
    response = post(f"{server}/compare", json={**PARTING, "versions": VERSIONS})
    assert response.status_code == 200
    body = response.json()
    assert list(body) == ["question", "agree", "groups", "answers"]
    assert body["question"] == PARTING["question"]
    alone = [post(f"{server}/answer", json={**PARTING, "index": version}).json() for version in VERSIONS]
    assert [without_seconds(one) for one in body["answers"]] == [without_seconds(one) for one in alone]
    for answer, version in zip(body["answers"], VERSIONS, strict=True):
        assert answer["index"]["version"] == version
        assert {one["text"] for one in answer["passages"]} == {passage.text for passage in tiny_passages(version)}


def test_the_groups_say_which_version_says_what(settings: Settings, engine: RagEngine) -> None:
    # what is least like the question in the one book is most like it in the other
    vectors = -tiny_vectors(tiny_passages("tiny-2018"))
    publish_tiny(IndexStore(settings.indexes), "tiny-2018", vectors=vectors, replace=True)
    with serving(create_app(settings, engine=engine), settings) as server:
        body = post(f"{server}/compare", json={**PARTING, "n_docs": 3, "versions": VERSIONS}).json()
    texts = [answer["answer"] for answer in body["answers"]]
    assert texts[0] != texts[1]
    assert body["agree"] is False
    assert body["groups"] == [
        {"answer": text, "versions": [version]} for text, version in zip(texts, VERSIONS, strict=True)
    ]


def test_versions_that_say_the_same_agree(server: str) -> None:
    # the passages that count most for this question did not change
    body = post(f"{server}/compare", json={**PARTING, "n_docs": 3, "versions": VERSIONS}).json()
    [text] = {answer["answer"] for answer in body["answers"]}
    assert body["agree"] is True
    assert body["groups"] == [{"answer": text, "versions": VERSIONS}]


def test_a_comparison_goes_on_under_swaps_and_never_mixes(server: str) -> None:
    for swap in range(6):
        version = ("tiny-2018", "tiny-2016")[swap % 2]
        assert post(f"{server}/index/swap", json={"version": version}, headers=ADMIN).status_code == 200
        body = post(f"{server}/compare", json={**PARTING, "versions": VERSIONS}).json()
        assert [answer["index"]["version"] for answer in body["answers"]] == VERSIONS
        assert {answer["index"]["generation"] for answer in body["answers"]} == {swap + 1}


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"versions": ["tiny-2016", "wiki-1999"]}, 404, "unknown_index"),
        ({"versions": ["tiny-2016", "../tiny-2018"]}, 404, "unknown_index"),
        ({"versions": ["tiny-2016", "tiny-2018"], "n_docs": 13}, 422, "invalid_request"),
        ({"versions": ["tiny-2016", "tiny-2018"], "n_docs": 21}, 422, "invalid_request"),
        ({"versions": ["tiny-2016", "tiny-2018"], "timeout_s": 1e-9}, 504, "deadline_exceeded"),
    ],
)
def test_a_comparison_is_refused_as_a_whole(server: str, changed: object, status: int, code: str) -> None:
    response = post(f"{server}/compare", json={**PARTING, **changed})  # type: ignore[dict-item]
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_a_version_that_is_not_open_is_not_compared(settings: Settings, engine: RagEngine) -> None:
    settings = settings.model_copy(update={"residents": 1})
    with serving(create_app(settings, engine=engine), settings) as server:
        response = post(f"{server}/compare", json={**PARTING, "versions": VERSIONS})
        assert (response.status_code, response.json()["code"]) == (409, "index_not_resident")


def test_the_access_log_names_all_the_versions(app: FastAPI, server: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "openbook.access"):
        post(f"{server}/compare", json={**PARTING, "versions": VERSIONS})
        get(f"{server}/healthz")
    facts = next(vars(record)["facts"] for record in caplog.records if record.name == "openbook.access")
    assert (facts["route"], facts["index"]) == ("/compare", "tiny-2018,tiny-2016")
    assert facts["generate_s"] > 0
    assert "peru" not in str([vars(record) for record in caplog.records])
