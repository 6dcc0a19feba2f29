import gc
from contextlib import suppress

import pytest

from openbook.cli.client import running_service, url_of, without_collecting
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


def test_garbage_is_collected_again_after_an_import_that_fails() -> None:
    meanwhile = []
    with suppress(ImportError), without_collecting():
        meanwhile.append(gc.isenabled())
        raise ImportError
    assert meanwhile == [False]
    assert gc.isenabled()
