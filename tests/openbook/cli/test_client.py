import pytest

from openbook.cli.client import running_service, url_of
from openbook.errors import SettingInvalid
from openbook.settings import Settings


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://[::1"])
def test_a_url_that_is_none_is_wrong_use(url: str) -> None:
    with pytest.raises(SettingInvalid, match="--url"):
        running_service(url, timeout_s=1)


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
