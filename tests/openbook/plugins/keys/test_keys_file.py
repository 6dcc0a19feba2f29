"""The file of keys: what stands in it, how it is read again, and the command that writes it."""

import logging
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.errors import SettingInvalid
from openbook.plugins.keys.gate import RateExceeded, Rates
from openbook.plugins.keys.keys_file import Key, KeysFile, digest_of, parse_keys
from tests.fixtures.command_line import Run

ANNA, BO = b"the key of anna", b"the key of bo"


def line(name: str, key: bytes, limit: str = "") -> str:
    return f"{name} sha256:{digest_of(key).hex()}{limit}\n"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_file_holds_names_hashes_rates_and_comments() -> None:
    text = "# readers\n\n" + line("anna", ANNA) + line("bo-2", BO, "  60/min # of the docs").upper().lower()
    assert parse_keys(text.encode()) == (Key("anna", digest_of(ANNA), None), Key("bo-2", digest_of(BO), 60))


@pytest.mark.parametrize(
    "wrong",
    [
        *("secret", "anna secret", "anna sha256:abc", "an/na sha256:" + "0" * 64, "anna md5:" + "0" * 64),
        *(line("anna", ANNA, " 0/min"), line("anna", ANNA, " 60/s"), line("anna", ANNA, " 60"), "\xff"),
    ],
)
def test_a_wrong_line_is_named_by_its_number_and_never_repeated(wrong: str) -> None:
    with pytest.raises(SettingInvalid) as raised:
        parse_keys(f"# one\n{line('bo', BO)}{wrong.strip()}\n".encode("latin-1"))
    assert str(raised.value) == "OPENBOOK_API_KEYS_FILE: line 3 is not NAME sha256:HEX [RATE/min]."


def test_a_name_comes_once() -> None:
    with pytest.raises(SettingInvalid, match=r"line 2 names anna a second time\.$"):
        parse_keys((line("anna", ANNA) + line("anna", BO)).encode())


def test_a_change_counts_after_a_second_and_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, path = Clock(), tmp_path / "keys"
    path.write_text(line("anna", ANNA))
    keys = KeysFile(path, clock)
    anna = keys.holder(ANNA)
    assert anna is not None
    assert anna.name == "anna"
    assert keys.holder(BO) is None
    path.write_text(line("bo", BO))
    assert keys.has(anna)
    clock.now = 1.0
    assert not keys.has(anna)
    assert keys.holder(BO) is not None
    for spoil in (lambda: path.write_text("my secret"), path.unlink):
        spoil()
        with caplog.at_level(logging.INFO):
            for _ in range(3):
                clock.now += 1.0
                assert keys.holder(BO) is not None
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [text.partition(". ")[0] for text in told] == [
        "OPENBOOK_API_KEYS_FILE: line 1 is not NAME sha256:HEX [RATE/min]",
        "OPENBOOK_API_KEYS_FILE: keys cannot be read: No such file or directory",
    ]
    assert "secret" not in caplog.text
    path.write_text(line("anna", ANNA))
    clock.now += 1.0
    assert keys.holder(ANNA) is not None
    assert keys.holder(BO) is None


@given(rate=st.integers(1, 100), waits=st.lists(st.floats(0, 30), max_size=60))
def test_no_minute_holds_more_than_two_rates(rate: int, waits: list[float]) -> None:
    clock = Clock()
    rates, key, taken = Rates(clock), Key("anna", b"", rate), []
    for wait in waits:
        clock.now += wait
        try:
            rates.take(key)
            taken.append(clock.now)
        except RateExceeded as error:
            after = float(error.data["retry_after_s"])
            assert 0 < after <= 60 / rate + 1
    assert all(sum(one <= when <= one + 60 for when in taken) <= 2 * rate for one in taken)


def test_a_rate_is_a_minutes_worth_at_once() -> None:
    clock = Clock()
    rates, key = Rates(clock), Key("anna", b"", 6)
    for _ in range(6):
        rates.take(key)
    with pytest.raises(RateExceeded, match=r"^The key of anna may ask 6 times a minute\. Try again in 10 s\.$"):
        rates.take(key)
    rates.take(Key("bo", b"", 1))
    clock.now = 10.0
    rates.take(key)


def test_the_command_makes_a_key_that_opens(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    made = run("keys", "add", "anna", "--rate", 60, "--api-keys-file", path)
    assert made.code == 0, made.err
    key = made.out.strip()
    assert len(key) >= 40
    assert key not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert parse_keys(path.read_bytes()) == (Key("anna", digest_of(key.encode()), 60),)
    again = run("keys", "add", "anna", "--api-keys-file", path)
    assert (again.code, again.out) == (2, "")
    assert "keys has a key of anna" in again.err
    assert run("keys", "add", "b o", "--api-keys-file", path).code == 2
    assert (
        run("keys", "add", "bo").err == "error [setting_invalid]: OPENBOOK_API_KEYS_FILE: names no file for the key.\n"
    )
    assert len(parse_keys(path.read_bytes())) == 1
