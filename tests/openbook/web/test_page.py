"""The page as it is sent: its headers, its files, and what must not be in them."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from openbook.api import page
from openbook.api.app import create_app
from openbook.settings import Settings

FILES = sorted(page.WEB.iterdir())
HTML = [file for file in FILES if file.suffix == ".html"]
SCRIPTS = [file for file in FILES if file.suffix == ".js"]


@pytest.fixture(scope="module")
def client() -> TestClient:
    """Of a service whose lifespan has not begun: the pages need no checkpoint and no index."""
    return TestClient(create_app(Settings(indexes=Path("nowhere"))), base_url="http://localhost")


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def policy_of(headers: object) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in headers["content-security-policy"].split(";"))  # type: ignore[index]
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_is_sent_with_a_policy_that_lets_nothing_in(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = policy_of(response.headers)
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("file", HTML, ids=lambda file: file.name)
def test_a_page_holds_no_script_style_or_handler_of_its_own(file: Path) -> None:
    text = text_of(file)
    assert not re.findall(r"<script(?![^>]*\ssrc=)", text)
    assert "<style" not in text
    assert not re.findall(r"\s(?:style|on\w+)=", text)
    assert "javascript:" not in text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_names_no_other_host(file: Path) -> None:
    text = text_of(file).replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text)
    assert "@import" not in text


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_a_script_makes_no_markup_of_strings_and_keeps_no_token(file: Path) -> None:
    text = text_of(file)
    for sink in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    ):
        assert sink not in text
    assert "sessionStorage" not in text
    assert file.name == "theme.js" or "localStorage" not in text
    assert "token" not in text or file.name != "theme.js"


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_a_script_is_read_in_one_sitting(file: Path) -> None:
    lines = text_of(file).splitlines()
    assert len(lines) <= 200
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize("file", HTML, ids=lambda file: file.name)
def test_every_file_that_a_page_names_is_sent(client: TestClient, file: Path) -> None:
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', text_of(file))
    assert named
    for address in named:
        assert client.get(address).status_code == 200, address


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_every_module_that_a_script_imports_is_there_with_what_it_takes(file: Path) -> None:
    for names, module in re.findall(r'^import \{(.+?)\} from "\./(.+?)";$', text_of(file), re.MULTILINE):
        source = text_of(page.WEB / module)
        for name in names.split(","):
            exported = rf"^export (?:async )?(?:function\*?|class|const) {name.strip()}\b"
            assert re.search(exported, source, re.MULTILINE), f"{module} has no {name}"


def test_every_id_that_the_scripts_look_for_is_on_the_page() -> None:
    ids = set(re.findall(r'\bid="([^"]+)"', text_of(page.WEB / "index.html")))
    for file in SCRIPTS:
        assert set(re.findall(r'byId\("([^"]+)"\)', text_of(file))) <= ids, file.name


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("main.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_a_file_is_sent_once_and_then_only_asked_about(client: TestClient, name: str, media_type: str) -> None:
    first = client.get(f"/static/{name}")
    assert first.content == (page.WEB / name).read_bytes()
    assert first.headers["content-type"] == media_type
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f"W/{etag}", f'"another", {etag}', "*"):
        again = client.get(f"/static/{name}", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert client.get(f"/static/{name}", headers={"if-none-match": '"another"'}).status_code == 200


def test_an_etag_is_that_of_the_bytes(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1", encoding="utf-8")
    one = page.read_assets(tmp_path)["a.js"].etag
    (tmp_path / "a.js").write_text("2", encoding="utf-8")
    two = page.read_assets(tmp_path)["a.js"].etag
    assert one != two
    etags = {client.get(f"/static/{file.name}").headers["etag"] for file in FILES}
    assert len(etags) == len(FILES)


def test_a_head_request_has_the_headers_and_no_body(client: TestClient) -> None:
    for path in ("/", "/docs", "/static/main.js"):
        head, whole = client.head(path), client.get(path)
        assert head.status_code == 200
        assert head.content == b""
        assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e/page.py", "a/b.js", ""])
def test_no_name_leads_out_of_the_folder(client: TestClient, name: str) -> None:
    response = client.get(f"/static/{name}")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
