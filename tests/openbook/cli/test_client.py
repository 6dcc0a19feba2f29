import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from openbook.cli.client import RunningService, url_of
from openbook.errors import ServerUnreachable, SettingInvalid
from openbook.settings import Settings


@pytest.fixture
def something_else() -> Iterator[str]:
    """A server of another make, which answers everything with its own kind of 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = b'{"detail": "Not Found"}'
            self.send_response(404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_server_on_the_port_is_not_taken_for_openbook(something_else: str) -> None:
    with pytest.raises(ServerUnreachable, match="something else"):
        RunningService(something_else, timeout_s=1).answer({"question": "who ?"})


def test_a_proxy_of_the_environment_does_not_come_between_this_machine_and_itself(
    something_else: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ServerUnreachable, match="something else"):
        RunningService(something_else, timeout_s=1).answer({"question": "who ?"})


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://[::1"])
def test_a_url_that_is_none_is_wrong_use(url: str) -> None:
    with pytest.raises(SettingInvalid, match="--url"):
        RunningService(url, timeout_s=1).get("/index")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("books.example", "http://books.example:8000"),
    ],
)
def test_a_service_is_found_where_its_settings_put_it(host: str, url: str) -> None:
    assert url_of(Settings(host=host, port=8000)) == url
