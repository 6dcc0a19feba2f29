"""POST /v1/embeddings: vectors of the question encoder, as OpenAI's clients read them."""

import base64
from typing import Any

import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.retriever import QuestionEncoder
from openbook.settings import Settings
from tests.openbook.api.conftest import PERU, MakeClient, Serve

TEXTS = [PERU, "where is nepal ?", *(f"question {number}" for number in range(9))]


def embedded(client: TestClient, **changed: Any) -> Any:
    return client.post("/v1/embeddings", json={"model": "openbook", "input": TEXTS} | changed)


def test_each_text_has_the_encoders_vector_at_length_1_in_either_form(reader: TestClient, settings: Settings) -> None:
    encoder = QuestionEncoder(load_checkpoint(settings.checkpoint))
    expected = encoder.encode(TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = embedded(reader).json()
    assert [one["index"] for one in found["data"]] == list(range(len(TEXTS)))
    np.testing.assert_allclose([one["embedding"] for one in found["data"]], expected, atol=1e-6)
    n_read = sum(map(len, encoder.token_ids(TEXTS)))
    assert found["usage"] == {"prompt_tokens": n_read, "total_tokens": n_read}
    packed = embedded(reader, encoding_format="base64", dimensions=encoder.dimension, user="me")
    assert packed.headers["x-openbook-ignored"] == "user"
    vectors = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed.json()["data"]]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_the_client_of_openai_reads_it(serve: Serve) -> None:
    client = openai.OpenAI(base_url=f"{serve()}/v1", api_key="any")
    found = client.embeddings.create(model="openbook", input=PERU)
    assert len(found.data) == 1
    assert np.linalg.norm(found.data[0].embedding) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("changed", "status", "param"),
    [
        ({"model": "text-embedding-3-small"}, 404, "model"),
        ({"model": "openbook:wiki-1999"}, 404, "model"),
        ({"input": ""}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": ["x"] * 257}, 400, "input"),
        ({"input": [101, 102]}, 400, "input"),
        ({"input": [[101], [102]]}, 400, "input"),
        ({"encoding_format": "hex"}, 400, "encoding_format"),
        ({"dimensions": 7}, 400, "dimensions"),
        ({"inputs": "x"}, 400, "inputs"),
    ],
)
def test_what_is_no_request_is_refused(reader: TestClient, changed: Any, status: int, param: str) -> None:
    response = embedded(reader, **changed)
    assert (response.status_code, response.json()["error"]["param"].partition("[")[0]) == (status, param)


def test_tokens_are_refused_with_the_setting_of_the_client_that_sends_them(reader: TestClient) -> None:
    assert "check_embedding_ctx_length=False" in embedded(reader, input=[[101]]).json()["error"]["message"]


def test_a_text_that_is_too_long_is_counted_in_characters(reader: TestClient) -> None:
    message = embedded(reader, input=["x" * 32_769]).json()["error"]["message"]
    assert message == "input[0]: must have at most 32768 characters"


def test_it_takes_a_place_in_the_queue(make_client: MakeClient) -> None:
    response = embedded(make_client(timeout_s=1e-9))
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
