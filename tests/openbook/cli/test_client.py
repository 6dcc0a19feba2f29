import pytest

from openbook.cli.client import running_service, url_of
from openbook.errors import SettingInvalid
from openbook.settings import Settings


def test_what_no_request_can_carry_has_the_name_that_the_user_knows() -> None:
    with pytest.raises(SettingInvalid, match=r"^--url: 'localhost:8000' is no address"):
        running_service("localhost:8000", timeout_s=1)
    with pytest.raises(SettingInvalid, match=r"^OPENBOOK_ADMIN_TOKEN: holds a control character"):
        running_service("http://127.0.0.1:9", timeout_s=1, token="open\tsesame")


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
