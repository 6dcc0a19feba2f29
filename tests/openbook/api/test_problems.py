"""One body, one table, and a document that agrees with both."""

import json
import re

import pytest
from fastapi import Request
from starlette.testclient import TestClient

from openbook import errors
from openbook.api import problems
from openbook.api.app import create_app
from openbook.api.calls import answer_request
from openbook.api.schemas import SearchParameters, SwapRequest
from openbook.entities import IndexInfo
from openbook.errors import InvalidRequest, OpenbookError
from openbook.plugins.keys.gate import RateExceeded
from openbook.plugins.openai.problems import ModelNotFound
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.openbook.api.conftest import ADMIN, MakeClient
from tests.places import ROOT
from tests.waiting import until

MISSING = ("/nowhere", "/static/nothing.js", "/static/..%2fquestions.py")
CALLS = "/docs lists every call."
ON_DISK = "Versions on disk: tiny-2016, tiny-2018."
DOCUMENT = ROOT / "docs" / "http.md"


def children(parent: type[OpenbookError]) -> list[type[OpenbookError]]:
    found = []
    for child in parent.__subclasses__():
        found += [child, *children(child)]
    return found


# those of two plug-ins, whether or not another test has imported them
ERRORS = list(dict.fromkeys([*children(OpenbookError), ModelNotFound, RateExceeded]))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_a_status_of_its_own_or_its_parents(error: type[OpenbookError]) -> None:
    named = [parent for parent in error.__mro__ if parent in problems.STATUSES]
    assert named, f"{error.__name__} is not in the table of openbook/api/problems.py"
    assert problems.status_of(error) == problems.STATUSES[named[0]]
    assert 400 <= problems.status_of(error) < 600


def test_no_code_has_two_statuses() -> None:
    statuses: dict[str, set[int]] = {}
    for error in ERRORS:
        statuses.setdefault(error.code, set()).add(problems.status_of(error))
    assert {code: found for code, found in statuses.items() if len(found) > 1} == {}


def test_no_error_but_the_root_has_the_code_of_a_bug() -> None:
    assert [error for error in ERRORS if error.code == OpenbookError.code] == []


def test_the_documents_table_is_the_codes_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {code: int(status) for code, status in rows}
    assert len(rows) == len(documented)
    # of the command line, which no route raises
    offline = {"source_invalid", "setting_invalid", "server_unreachable", "server_refused"}
    expected = {error.code: problems.status_of(error) for error in ERRORS if error.code not in offline}
    expected |= {code: status for status, code in problems.HTTP_CODES.items()}
    assert documented == expected


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "detail"),
    [
        *(("GET", path, 404, "not_found", f"There is nothing at this address. {CALLS}") for path in MISSING),
        ("POST", "/answer/", 404, "not_found", f"There is nothing at this address. {CALLS}"),
        ("GET", "/answer", 405, "method_not_allowed", f"This address takes POST. {CALLS}"),
        ("DELETE", "/index", 405, "method_not_allowed", f"This address takes GET. {CALLS}"),
        ("GET", "/index/wiki-1999", 404, "unknown_index", f"There is no index version 'wiki-1999'. {ON_DISK}"),
    ],
)
def test_every_error_comes_as_one_exact_body(
    reader: TestClient, method: str, path: str, status: int, code: str, detail: str
) -> None:
    response = reader.request(method, path, headers={"x-request-id": "abc-1"})
    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == status
    assert response.json() == {
        "type": f"urn:openbook:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": "abc-1",
    }


def test_a_long_name_is_not_repeated_at_length(reader: TestClient) -> None:
    response = reader.get("/index/" + "x" * 5000)
    assert response.status_code == 404
    assert len(response.json()["detail"]) < 600


def test_a_problem_can_say_anything_in_utf8() -> None:
    request = Request({"type": "http", "headers": [], "app": create_app(Settings())})
    response = problems.respond(problems.of_error(InvalidRequest(field="x", reason="half of \ud83d")), request)
    assert json.loads(response.body)["errors"] == [{"field": "x", "reason": "half of \\ud83d"}]


def fields_of(heading: str) -> set[str]:
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_the_document_explains_every_field_of_a_request() -> None:
    thoroughness = {field.alias or name for name, field in SearchParameters.model_fields.items()}
    assert fields_of("POST /answer") == set(answer_request().model_fields) | thoroughness
    assert fields_of("POST /index/swap") == set(SwapRequest.model_fields)


def test_the_document_lists_every_call(reader: TestClient) -> None:
    paths = reader.get("/openapi.json").json()["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    overview = DOCUMENT.read_text(encoding="utf-8").split("\n## ")[0]
    assert set(re.findall(r"`((?:GET|POST) /[^`]*)`", overview)) == calls | {"GET /", "GET /docs"}


def test_the_document_lists_every_metric(client: TestClient) -> None:
    types = re.findall(r"^# TYPE (openbook_\w+) (\w+)$", client.get("/metrics").text, re.MULTILINE)
    served = {name for name, _ in types}
    section = DOCUMENT.read_text(encoding="utf-8").split("\n## GET /metrics\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(openbook_\w+)`", section))
    # a service that wants keys alone counts readers
    assert documented - {"openbook_reader_requests_total"} == served


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[Errno 13] Permission denied: '/srv/my books/CURRENT'", "[Errno 13] Permission denied: 'CURRENT'"),
        ("""PosixPath("/srv/it's/here"), '/indexes/'""", """PosixPath("here"), 'indexes'"""),
        ("Error: could not open /srv/books/a/index.faiss for reading", "Error: could not open index.faiss for reading"),
        ("(/srv/books/) =/a/b", "() =b"),
        # none of these is a path of the disk
        ("see /docs, https://a.example/b/c, text/html", "see /docs, https://a.example/b/c, text/html"),
        ("two\nlines,\ttwo\rtabs", "two lines, two tabs"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 496 + " ..."),
    ],
)
def test_a_text_is_shown_on_one_bounded_line_without_paths(text: str, told: str) -> None:
    assert problems.shown(text) == told


def test_what_a_client_sent_and_addresses_of_ours_come_back_whole(reader: TestClient) -> None:
    filtered = {"question": "who ?", "filter": {"field": "/meta/path", "operator": "==", "value": "x"}}
    for told, response in (
        ("'/docs/guide/a.md'", reader.get("/passages/tiny-2016/%2Fdocs%2Fguide%2Fa.md")),
        ("'/meta/path'", reader.post("/retrieve", json=filtered)),
        ("/a/b: there is no such field", reader.post("/retrieve", json={"question": "who ?", "/a/b": 1})),
        ("call /v1/chat/completions", reader.post("/v1/completions", json={"model": "openbook", "prompt": "who ?"})),
    ):
        assert told in response.text


@pytest.mark.parametrize("path", ["/health", "/healthz", "/readyz"])
def test_a_monitor_may_ask_for_the_head_alone(reader: TestClient, path: str) -> None:
    asked, whole = reader.head(path), reader.get(path)
    assert (asked.status_code, asked.headers["content-length"]) == (200, whole.headers["content-length"])


def test_what_anyone_may_read_is_bounded_and_the_log_has_the_whole(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reason = f"could not open /srv/books/tiny-2018/index.faiss:\n{'x' * 5000}"

    def info(store: IndexStore, version: str) -> IndexInfo:
        raise errors.IndexCorrupt(version=version, reason=reason)

    client = make_client(follow_s=0.01)
    monkeypatch.setattr(IndexStore, "info", info)
    details = [client.get("/index/tiny-2018").json()["detail"]]
    assert client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 500
    details.append(client.get("/index/swap").json()["detail"])
    folder = client.app.state.services.store.folder  # type: ignore[attr-defined]
    # as a whole: the service looks at it all the time, and would see an empty one
    (folder / "aside").write_text("tiny-2018\n")
    (folder / "aside").replace(folder / "CURRENT")
    until(lambda: not client.get("/readyz").json()["following"]["ok"])
    details.append(client.get("/readyz").json()["following"]["detail"])
    assert (
        details == [f"The index 'tiny-2018' cannot be read: could not open index.faiss: {'x' * 500}"[:496] + " ..."] * 3
    )
    for name in (problems.__name__, "openbook.application.swap_index", "openbook.application.follow_current"):
        assert reason in "\n".join(record.getMessage() for record in caplog.records if record.name == name)
