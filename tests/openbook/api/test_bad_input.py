"""Whatever is sent, the answer is a problem with a code, and nothing is half done."""

import json
import re
from collections.abc import Iterator

import httpx
import pytest
from starlette.testclient import TestClient

from openbook.api.schemas import MAX_SEARCH
from tests.openbook.api.conftest import ADMIN, BODIES, refused
from tests.waiting import PATIENCE_S

QUESTION = {"question": "who is the king ?"}
SWAP = {"version": "tiny-2018"}
JSON = {"content-type": "application/json"}
BLANK = "must not be empty or blank"
UNKNOWN = "there is no such field"
HALF = "holds half of a surrogate pair, which is no character"
AT_LEAST_1 = "must be greater than or equal to 1"
NO_STRING = "must be a valid string"
NO_INTEGER = "must be a valid integer"
NO_NUMBER = "must be a valid number"
NO_LIMIT = 'must be "calibrated", "never" or {"max_no_answer": a number from 0 to 1}'
NO_OBJECT = "must be a JSON object"
NO_TURNS = 'must be a list of turns, the oldest first: [{"question": "...", "answer": "..."}]'
LONG_NAME = "must have at most 64 characters"

OF_ANSWER: list[tuple[object, str, str]] = [
    ({}, "question", "is required"),
    *(({"question": blank}, "question", BLANK) for blank in ("", " \n\t  ")),
    *(({"question": wrong}, "question", NO_STRING) for wrong in (None, ["who"])),
    ({"question": "x" * 2001}, "question", "must have at most 2000 characters"),
    ({"question": "who\0am"}, "question", "holds a NUL character"),
    ({"question": "\ud800"}, "question", HALF),
    ({**QUESTION, "qestion": 1}, "qestion", UNKNOWN),
    ({**QUESTION, "n_docs": 51}, "n_docs", "must be at most 50, not 51"),
    *(({**QUESTION, "n_docs": few}, "n_docs", AT_LEAST_1) for few in (0, -5)),
    *(({**QUESTION, "n_docs": wrong}, "n_docs", NO_INTEGER) for wrong in (2.5, "5", True)),
    ({**QUESTION, "model": "words"}, "model", "must be 'token', 'sequence' or 'single-prompt'"),
    ({**QUESTION, "decoding": "slow"}, "decoding", "must be 'thorough' or 'fast'"),
    *(({**QUESTION, name: 0}, name, AT_LEAST_1) for name in ("num_beams", "max_new_tokens", "num_answers")),
    ({**QUESTION, "num_beams": 17}, "num_beams", "must be at most 16, not 17"),
    ({**QUESTION, "max_new_tokens": 129}, "max_new_tokens", "must be at most 128, not 129"),
    ({**QUESTION, "num_beams": 4, "num_answers": 5}, "num_answers", "must be at most num_beams, which is 4, not 5"),
    ({**QUESTION, "num_answers": 17}, "num_answers", "must be at most 16, not 17"),
    *(({**QUESTION, "abstain": wrong}, "abstain", NO_LIMIT) for wrong in ("often", 0.5, True, [])),
    ({**QUESTION, "abstain": {}}, "abstain.max_no_answer", "is required"),
    ({**QUESTION, "abstain": {"max_no_answer": "1"}}, "abstain.max_no_answer", NO_NUMBER),
    ({**QUESTION, "abstain": {"max_no_answer": 2}}, "abstain.max_no_answer", "must be less than or equal to 1"),
    ({**QUESTION, "abstain": {"max_no_answer": 1, "max": 1}}, "abstain.max", UNKNOWN),
    *(({**QUESTION, "history": wrong}, "history", NO_TURNS) for wrong in ("who", {}, {"question": "who ?"}, True)),
    ({**QUESTION, "history": [QUESTION] * 21}, "history", "must have at most 20 entries"),
    ({**QUESTION, "history": ["who ?"]}, "history[0]", NO_OBJECT),
    ({**QUESTION, "history": [QUESTION, {"answer": "he"}]}, "history[1].question", "is required"),
    ({**QUESTION, "history": [{**QUESTION, "role": "user"}]}, "history[0].role", UNKNOWN),
    ({**QUESTION, "history": [{**QUESTION, "answer": 5}]}, "history[0].answer", NO_STRING),
    (
        {**QUESTION, "history": [{**QUESTION, "answer": "x" * 4001}]},
        "history[0].answer",
        "must have at most 4000 characters",
    ),
    ({**QUESTION, "timeout_s": 0}, "timeout_s", "must be greater than 0"),
    ({**QUESTION, "timeout_s": 601}, "timeout_s", "must be at most 120, not 601.0"),
    *(({**QUESTION, "timeout_s": wrong}, "timeout_s", NO_NUMBER) for wrong in ("soon", "5", True, [5])),
    ({**QUESTION, "index": ""}, "index", BLANK),
    ({**QUESTION, "index": "x" * 65}, "index", LONG_NAME),
    *((wrong, "body", NO_OBJECT) for wrong in ([], "who", None)),
    # more than the index holds
    (
        {**QUESTION, "n_docs": 13},
        "n_docs",
        "13 passages were asked for, the index 'tiny-2016' holds 12. Ask for fewer.",
    ),
]
OF_TARGETS: list[tuple[object, str, str]] = [
    ([], "targets", "must have at least 1 entry"),
    (["yes"] * 2, "body", "targets holds the same target twice, which would halve its probability"),
    (["yes", " "], "targets[1]", BLANK),
    (["yes", "\0"], "targets[1]", "holds a NUL character"),
    (["yes", "x" * 501], "targets[1]", "must have at most 500 characters"),
    ([str(number) for number in range(101)], "targets", "must have at most 100 entries"),
    ("yes", "targets", "must be a valid list"),
]
OF_VERSIONS: list[tuple[object, str, str]] = [
    *((few, "versions", "must have at least 2 entries") for few in ([], ["tiny-2016"])),
    ([f"tiny-{year}" for year in range(9)], "versions", "must have at most 8 entries"),
    (["tiny-2016", "tiny-2018", " tiny-2016 "], "versions", "holds the same version twice"),
    (["tiny-2016", " "], "versions[1]", BLANK),
    (["tiny-2016", "x" * 65], "versions[1]", LONG_NAME),
    (["tiny-2016", 2018], "versions[1]", NO_STRING),
    ("tiny-2016", "versions", "must be a valid list"),
]
OF_SEARCH: list[tuple[object, str, str]] = [
    ({"nprobe": 0}, "search.nprobe", AT_LEAST_1),
    ({"candidates": MAX_SEARCH + 1}, "search.candidates", f"must be less than or equal to {MAX_SEARCH}"),
    ({"efSearch": "9"}, "search.efSearch", NO_INTEGER),
    *(({"nprobe": wrong}, "search.nprobe", NO_INTEGER) for wrong in (2.5, True)),
    ({"ef_search": 9}, "search.ef_search", UNKNOWN),
    ([], "search", NO_OBJECT),
]
OF_CHANGES: list[tuple[str, object, str, str]] = [
    ("swap", {}, "version", "is required"),
    ("swap", {**SWAP, "wait": "no"}, "wait", "must be a valid boolean"),
    ("swap", {**SWAP, "policy": "hope"}, "policy", "must be 'availability' or 'resource'"),
    ("rollback", SWAP, "version", UNKNOWN),
    ("rollback", {"verify": "eyes"}, "verify", "must be 'manifest' or 'checksum'"),
    ("load", {"version": "x" * 65}, "version", LONG_NAME),
    ("load", {**SWAP, "policy": "resource"}, "policy", UNKNOWN),
]


RETRIEVERS = "'auto', 'dense', 'bm25', 'hybrid' or 'reranked'"


@pytest.mark.parametrize(
    ("path", "body", "field", "reason"),
    [
        *(("/answer", *row) for row in OF_ANSWER),
        *(("/score", {**QUESTION, "targets": targets}, *row) for targets, *row in OF_TARGETS),
        *(("/compare", {**QUESTION, "versions": versions}, *row) for versions, *row in OF_VERSIONS),
        # a comparison is pinned by its versions alone
        ("/compare", {**QUESTION, "versions": ["tiny-2016", "tiny-2018"], "index": "tiny-2016"}, "index", UNKNOWN),
        *(("/retrieve", {**QUESTION, "search": search}, *row) for search, *row in OF_SEARCH),
        *(
            ("/retrieve", {**QUESTION, "retriever": wrong}, "retriever", f"must be {RETRIEVERS}")
            for wrong in ("BM25", "tfidf", "", 1)
        ),
        *((f"/index/{call}", *row) for call, *row in OF_CHANGES),
    ],
)
def test_a_body_that_does_not_validate_says_which_field_and_why(
    reader: TestClient, path: str, body: object, field: str, reason: str
) -> None:
    response = reader.post(path, content=json.dumps(body), headers=JSON | ADMIN)
    assert refused(response) == (422, "invalid_request", [(field, reason)])
    assert response.json()["detail"] == f"{field}: {reason}"
    assert reader.get("/index").json()["live"]["generation"] == 0


@pytest.mark.parametrize("path", BODIES)
def test_an_optional_field_that_is_null_counts_as_left_out(reader: TestClient, path: str) -> None:
    document = reader.get("/openapi.json").json()
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    absent = dict.fromkeys(schema["properties"].keys() - schema["required"])
    required = {name: BODIES[path][name] for name in schema["required"]}
    said = [reader.post(path, json=given).raise_for_status().text for given in (required, absent | required)]
    left_out, null = (re.sub(r'"seconds":\{[^}]*\}', "", text) for text in said)
    assert null == left_out
    assert refused(reader.post(path, json=required | {"qestion": None}))[2] == [("qestion", UNKNOWN)]


def test_every_field_at_fault_is_named(reader: TestClient) -> None:
    response = reader.post("/answer", json={"question": " ", "n_docs": 0, "x": 1})
    assert refused(response)[2] == [("question", BLANK), ("n_docs", AT_LEAST_1), ("x", UNKNOWN)]


def test_a_field_whose_name_is_no_text_is_refused(reader: TestClient) -> None:
    response = reader.post("/answer", content=b'{"question":"who","x\\ud800":1}', headers=JSON)
    assert refused(response)[2] == [("body", HALF)]


def test_a_thousand_unknown_fields_do_not_make_a_long_answer(reader: TestClient) -> None:
    response = reader.post("/answer", json={**QUESTION, **{f"field{number}": 1 for number in range(1000)}})
    assert len(refused(response)[2]) == 20
    assert len(response.content) < 5000


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
def test_a_body_that_is_not_json_in_utf8(reader: TestClient, content: bytes, detail: str) -> None:
    response = reader.post("/answer", content=content, headers=JSON)
    assert refused(response) == (400, "malformed_body", [])
    assert response.json()["detail"] == detail


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_a_body_of_another_type(reader: TestClient, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = reader.post("/answer", content=json.dumps(QUESTION), headers=headers)
    assert refused(response) == (415, "unsupported_media_type", [])
    assert response.json()["detail"] == "Send the body as application/json."


def test_a_content_type_with_a_character_set_will_do(reader: TestClient) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    assert reader.post("/retrieve", content=json.dumps(QUESTION), headers=headers).status_code == 200


def test_a_question_of_300_kb_is_refused_before_it_is_read(reader: TestClient) -> None:
    response = reader.post("/answer", json={"question": "x" * 300_000})
    assert refused(response) == (413, "body_too_large", [])
    assert response.json()["detail"] == "The request body has more than 262144 bytes."
    assert response.headers["connection"] == "close"


def test_a_body_in_pieces_is_bounded_too(server: str) -> None:
    sent = []

    def pieces() -> Iterator[bytes]:
        yield b'{"question": "'
        for _ in range(20):
            sent.append(20_000)
            yield b"x" * 20_000
        yield b'"}'

    with httpx.Client(timeout=PATIENCE_S) as http:
        response = http.post(f"{server}/answer", content=pieces(), headers=JSON)
    assert refused(response) == (413, "body_too_large", [])


def test_a_body_of_the_largest_size_is_read(reader: TestClient) -> None:
    content = json.dumps(QUESTION).encode()
    assert reader.post("/retrieve", content=content.ljust(262_144), headers=JSON).status_code == 200
    assert reader.post("/retrieve", content=content.ljust(262_145), headers=JSON).status_code == 413


def test_the_outer_space_of_a_question_is_no_part_of_it(reader: TestClient) -> None:
    bare = reader.post("/retrieve", json={"question": "who is the king ?"}).json()["passages"]
    assert reader.post("/retrieve", json={"question": "  who is the king ?\n"}).json()["passages"] == bare


def test_any_sayable_question_is_answered(reader: TestClient) -> None:
    for question in ("?", "é" * 2000, "誰", "🙂", "\u202e", "a\nb", "[MASK] [SEP] </s>", "' OR 1=1 --", "<script>"):
        response = reader.post("/answer", json={"question": question, "max_new_tokens": 2, "num_beams": 1})
        assert response.status_code == 200, question
