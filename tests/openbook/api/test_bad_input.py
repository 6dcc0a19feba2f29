"""Whatever is sent, the answer is a problem with a code, and nothing is half done."""

import json
from collections.abc import Iterator

import httpx
import pytest
from starlette.testclient import TestClient

QUESTION = {"question": "who is the king ?"}
JSON = {"content-type": "application/json"}


def refused(response: httpx.Response) -> tuple[int, str, list[tuple[str, str]]]:
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == response.status_code
    return response.status_code, body["code"], [(one["field"], one["reason"]) for one in body.get("errors", [])]


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({}, "question", "is required"),
        ({"question": ""}, "question", "must not be empty or blank"),
        ({"question": " \n\t  "}, "question", "must not be empty or blank"),
        ({"question": None}, "question", "must be a valid string"),
        ({"question": ["who"]}, "question", "must be a valid string"),
        ({"question": "x" * 2001}, "question", "must have at most 2000 characters"),
        ({"question": "who\0am"}, "question", "holds a NUL character"),
        ({"question": "\ud800"}, "question", "holds half of a surrogate pair, which is no character"),
        ({**QUESTION, "qestion": 1}, "qestion", "there is no such field"),
        ({**QUESTION, "n_docs": 0}, "n_docs", "must be greater than or equal to 1"),
        ({**QUESTION, "n_docs": -5}, "n_docs", "must be greater than or equal to 1"),
        ({**QUESTION, "n_docs": 21}, "n_docs", "must be at most 20, not 21"),
        ({**QUESTION, "n_docs": 2.5}, "n_docs", "must be a valid integer"),
        ({**QUESTION, "n_docs": "5"}, "n_docs", "must be a valid integer"),
        ({**QUESTION, "n_docs": True}, "n_docs", "must be a valid integer"),
        ({**QUESTION, "n_docs": None}, "n_docs", "must be a valid integer"),
        ({**QUESTION, "model": "words"}, "model", "must be 'token' or 'sequence'"),
        ({**QUESTION, "decoding": "slow"}, "decoding", "must be 'thorough' or 'fast'"),
        ({**QUESTION, "num_beams": 0}, "num_beams", "must be greater than or equal to 1"),
        ({**QUESTION, "num_beams": 17}, "num_beams", "must be at most 16, not 17"),
        ({**QUESTION, "max_new_tokens": 0}, "max_new_tokens", "must be greater than or equal to 1"),
        ({**QUESTION, "max_new_tokens": 129}, "max_new_tokens", "must be at most 128, not 129"),
        ({**QUESTION, "num_answers": 0}, "num_answers", "must be greater than or equal to 1"),
        ({**QUESTION, "num_answers": 5}, "num_answers", "must be at most num_beams, which is 4, not 5"),
        ({**QUESTION, "timeout_s": 0}, "timeout_s", "must be greater than 0"),
        ({**QUESTION, "timeout_s": 601}, "timeout_s", "must be less than or equal to 600"),
        ({**QUESTION, "timeout_s": "soon"}, "timeout_s", "must be a valid number"),
        ({**QUESTION, "index": ""}, "index", "must not be empty or blank"),
        ({**QUESTION, "index": "x" * 65}, "index", "must have at most 64 characters"),
        ([], "body", "must be a JSON object"),
        ("who", "body", "must be a JSON object"),
        (None, "body", "must be a JSON object"),
    ],
)
def test_a_body_that_does_not_validate_says_which_field_and_why(
    client: TestClient, body: object, field: str, reason: str
) -> None:
    response = client.post("/answer", content=json.dumps(body), headers=JSON)
    assert refused(response) == (422, "invalid_request", [(field, reason)])
    assert response.json()["detail"] == f"{field}: {reason}"


def test_every_field_at_fault_is_named(client: TestClient) -> None:
    response = client.post("/answer", json={"question": " ", "n_docs": 0, "x": 1})
    assert refused(response)[2] == [
        ("question", "must not be empty or blank"),
        ("n_docs", "must be greater than or equal to 1"),
        ("x", "there is no such field"),
    ]


def test_a_field_whose_name_is_no_text_is_refused(client: TestClient) -> None:
    response = client.post("/answer", content=b'{"question":"who","x\\ud800":1}', headers=JSON)
    assert refused(response)[2] == [("body", "holds half of a surrogate pair, which is no character")]


def test_a_thousand_unknown_fields_do_not_make_a_long_answer(client: TestClient) -> None:
    response = client.post("/answer", json={**QUESTION, **{f"field{number}": 1 for number in range(1000)}})
    assert len(refused(response)[2]) == 20
    assert len(response.content) < 5000


def test_more_passages_than_the_index_holds(client: TestClient) -> None:
    response = client.post("/answer", json={**QUESTION, "n_docs": 13})
    reason = "13 passages were asked for, the index 'tiny-2016' holds 12. Ask for fewer."
    assert refused(response) == (422, "invalid_request", [("n_docs", reason)])


@pytest.mark.parametrize(
    ("targets", "field", "reason"),
    [
        ([], "targets", "must have at least 1 entry"),
        (["yes"] * 2, "body", "targets holds the same target twice, which would halve its probability"),
        (["yes", " "], "targets[1]", "must not be empty or blank"),
        (["yes", "\0"], "targets[1]", "holds a NUL character"),
        (["yes", "x" * 501], "targets[1]", "must have at most 500 characters"),
        ([str(number) for number in range(101)], "targets", "must have at most 100 entries"),
        ("yes", "targets", "must be a valid list"),
    ],
)
def test_targets_that_cannot_be_scored(client: TestClient, targets: object, field: str, reason: str) -> None:
    response = client.post("/score", json={**QUESTION, "targets": targets})
    assert refused(response) == (422, "invalid_request", [(field, reason)])


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "The body is not JSON: Expecting value at line 1, column 1."),
        (b"{", "The body is not JSON: Expecting property name enclosed in double quotes at line 1, column 2."),
        (b'{"question": "who', "The body is not JSON: Unterminated string starting at at line 1, column 14."),
        (b'{"question": "\xff\xfe"}', "The body is not UTF-8: byte 14 cannot be read."),
        ('{"question": "who"}'.encode("utf-16"), "The body is not UTF-8: byte 0 cannot be read."),
        (
            b'{"question": "who", "timeout_s": NaN}',
            "The body is not JSON: a number or a nesting in it is out of bounds.",
        ),
        (b"[" * 30_000, "The body is not JSON: a number or a nesting in it is out of bounds."),
        (b'{"n_docs": ' + b"9" * 5000 + b"}", "The body is not JSON: a number or a nesting in it is out of bounds."),
    ],
)
def test_a_body_that_is_not_json_in_utf8(client: TestClient, content: bytes, detail: str) -> None:
    response = client.post("/answer", content=content, headers=JSON)
    assert refused(response) == (400, "malformed_body", [])
    assert response.json()["detail"] == detail


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_a_body_of_another_type(client: TestClient, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = client.post("/answer", content=json.dumps(QUESTION), headers=headers)
    assert refused(response) == (415, "unsupported_media_type", [])
    assert response.json()["detail"] == "Send the body as application/json."


def test_a_content_type_with_a_character_set_will_do(client: TestClient) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/retrieve", content=json.dumps(QUESTION), headers=headers).status_code == 200


def test_a_question_of_100_kb_is_refused_before_it_is_read(client: TestClient) -> None:
    response = client.post("/answer", json={"question": "x" * 100_000})
    assert refused(response) == (413, "body_too_large", [])
    assert response.json()["detail"] == "The request body has more than 65536 bytes."
    assert response.headers["connection"] == "close"


def test_a_body_in_pieces_is_bounded_too(server: str) -> None:
    sent = []

    def pieces() -> Iterator[bytes]:
        yield b'{"question": "'
        for _ in range(20):
            sent.append(10_000)
            yield b"x" * 10_000
        yield b'"}'

    with httpx.Client() as http:
        response = http.post(f"{server}/answer", content=pieces(), headers=JSON)
    assert refused(response) == (413, "body_too_large", [])


def test_a_body_of_the_largest_size_is_read(client: TestClient) -> None:
    content = json.dumps(QUESTION).encode()
    assert client.post("/retrieve", content=content.ljust(65_536), headers=JSON).status_code == 200
    assert client.post("/retrieve", content=content.ljust(65_537), headers=JSON).status_code == 413


def test_the_outer_space_of_a_question_is_no_part_of_it(client: TestClient) -> None:
    bare = client.post("/retrieve", json={"question": "who is the king ?"}).json()["passages"]
    assert client.post("/retrieve", json={"question": "  who is the king ?\n"}).json()["passages"] == bare


def test_any_sayable_question_is_answered(client: TestClient) -> None:
    for question in ("?", "é" * 2000, "誰", "🙂", "\u202e", "a\nb", "[MASK] [SEP] </s>", "' OR 1=1 --", "<script>"):
        response = client.post("/answer", json={"question": question, "max_new_tokens": 2, "num_beams": 1})
        assert response.status_code == 200, question
