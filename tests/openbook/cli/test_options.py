import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from openbook.cli import index_build
from openbook.cli.options import (
    REQUIRED,
    argument,
    describe,
    environment_name,
    flag,
    option,
    read_settings,
    with_options,
)
from openbook.errors import SettingInvalid
from openbook.indexing.index_spec import NUMBERS
from openbook.plugins.ready import commands as ready
from openbook.settings import Settings, settings_class
from openbook_lab.benchmarks import commands as bench
from tests.fixtures.command_line import Run

MAKERS = (index_build.build, ready.import_vectors, bench.index)


@dataclass(frozen=True)
class Search:
    n_docs: int = option(5, "How many.", min=1)
    kind: tuple[Literal["flat", "hnsw"], ...] = option(("flat",), "Which; again for more.")
    exact: bool = option(False, "Compare with all.", "--all")


@dataclass(frozen=True)
class Wide(Search):
    n_docs: int = option(50, "How many.")


def called(*given: str) -> list[Any]:
    """What a command of these options is called with; its output alone, where it ends without a call."""
    seen: list[Any] = []

    @with_options
    def command(
        settings: Annotated[Settings, "port", "indexes", "workers"],
        search: Wide,
        texts: tuple[str, ...] = argument("TEXT...", "What."),
        name: str = option(REQUIRED, "Its name."),
        limit: int | None = option(None, "How far."),
        words: tuple[str, ...] = option((), "Words.", "--word"),
        fast: bool = option(False, "Be quick."),
    ) -> None:
        seen.extend((settings, search, texts, name, limit, words, fast))

    app = typer.Typer()
    app.command()(command)
    ended = CliRunner().invoke(app, [*given], env={"COLUMNS": "200", "NO_COLOR": "1"})
    return seen or [ended.output]


def test_a_command_gets_its_options_and_objects_with_their_defaults(bare: None) -> None:
    settings, *others = called("one", "two", "--name", "x")
    assert settings == read_settings()
    assert others == [Wide(50, ("flat",), False), ("one", "two"), "x", None, (), False]


def test_what_is_given_again_and_again_is_a_tuple(bare: None) -> None:
    _, search, *others = called(
        *("one", "--name", "x", "--n-docs", "3", "--kind", "hnsw", "--kind", "flat", "--all"),
        *("--word", "a", "--word", "b", "--fast", "--limit", "0"),
    )
    assert search == Wide(3, ("hnsw", "flat"), True)
    assert others == [("one",), "x", 0, ("a", "b"), True]


def test_serve_has_an_option_for_every_setting_but_the_secrets(run: Run) -> None:
    text = " ".join(run("serve", "--help").out.split()).replace("- ", "-")
    secrets = ("admin_token", "api_key", "milvus_token", "generator_key")
    for name in settings_class().model_fields:
        assert (f"{flag(name)} " in text) == (name not in secrets)
        assert bool(re.search(rf"env: {environment_name(name)}[],]", text)) == (name not in secrets)


def test_an_options_help_is_the_settings_with_its_variable_and_default() -> None:
    port = settings_class().model_fields["port"]
    assert describe("port") == f"{port.description} [env: OPENBOOK_PORT, default: {port.default}]"
    assert describe("index").endswith("[env: OPENBOOK_INDEX]")


@pytest.mark.parametrize(
    ("port", "options", "said"),
    [
        ("8000", ("--residents", 0), "--residents: must be greater than or equal to 1, not 0\n"),
        ("eighty", (), "OPENBOOK_PORT: must be a valid integer"),
        ("8000", ("--threads", 100_000), "--threads: must be less than or equal to 1024, not 100000\n"),
        *(
            (
                "8000",
                ("--allowed-hosts", f"localhost, {name}"),
                f"--allowed-hosts: {name!r} is no name of a host: give the name alone, such as books.example.org\n",
            )
            for name in ("https://books.example.org", "books.example.org/ask", "a b", "*.example.org")
        ),
    ],
)
def test_a_wrong_setting_is_named_as_it_was_given(
    run: Run, monkeypatch: pytest.MonkeyPatch, port: str, options: tuple[object, ...], said: str
) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", port)
    ended = run("serve", *options)
    assert ended.code == 2
    assert ended.err.startswith(f"error [setting_invalid]: {said}")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("OPENBOOK_ALOWED_HOSTS", "OPENBOOK_ALLOWED_HOSTS"),
        ("OPENBOOK_MAXWORK", "OPENBOOK_MAX_WORK"),
        ("openbook_thread", "OPENBOOK_THREADS"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest_name(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    monkeypatch.setenv(name, "1")
    ended = run("serve")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"error [setting_invalid]: {name}: there is no such setting. Is {nearest} meant?\n"


@pytest.mark.parametrize(
    "name",
    [
        *("IMAGE", "CHECKPOINTS", "TEST_YEAR", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP"),
        *("PORT_8000_TCP", "PORT_8000_TCP_ADDR", "CANARY_SERVICE_HOST", "CANARY_PORT", "CANARY_PORT_80_TCP_PROTO"),
    ],
)
def test_what_compose_files_and_kubernetes_set_is_no_setting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"OPENBOOK_{name}", "tcp://10.0.0.1:8000")
    assert read_settings() == settings_class()()


def test_an_option_wins_over_the_environment_that_over_env_and_that_over_the_file(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("openbook.toml").write_text('port = 1\nworkers = 1\nresidents = 1\nmax_batch = 1\nprompt = "a.json"\n')
    Path(".env").write_text("OPENBOOK_WORKERS=2\nOPENBOOK_RESIDENTS=2\nOPENBOOK_MAX_BATCH=2\nPOSTGRES_USER=me\n")
    monkeypatch.setenv("OPENBOOK_RESIDENTS", "3")
    monkeypatch.setenv("OPENBOOK_MAX_BATCH", "3")
    settings = read_settings(max_batch=4)
    assert (settings.port, settings.workers, settings.residents, settings.max_batch) == (1, 2, 3, 4)
    # what the environment can say of a setting, the file can
    assert (settings.prompt, settings.model_fields_set >= {"port", "workers"}) == (Path("a.json"), True)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (
            ".env",
            "OPENBOOK_MAX_BATC=1",
            "OPENBOOK_MAX_BATC in .env: there is no such setting. Is OPENBOOK_MAX_BATCH meant?",
        ),
        ("openbook.toml", "max_batc = 1", "max_batc in openbook.toml: there is no such setting. Is max_batch meant?"),
        ("openbook.toml", "PORT = 1", "PORT in openbook.toml: there is no such setting. Is port meant?"),
        ("openbook.toml", "[serve]\nport = 1", "serve in openbook.toml: there is no such setting. Is device meant?"),
        (".env", "OPENBOOK_PORT=x", "OPENBOOK_PORT in .env: must be a valid integer"),
        ("openbook.toml", 'port = "x"', "port in openbook.toml: must be a valid integer"),
        ("openbook.toml", "port 1", "openbook.toml: "),
        ("openbook.toml", b"# \xff", "openbook.toml: "),
        (".env", b"OPENBOOK_PORT=\xff", ".env: "),
    ],
)
def test_what_a_file_sets_wrongly_is_named_with_the_file(run: Run, file: str, text: str | bytes, said: str) -> None:
    Path(file).write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = run("serve")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error [setting_invalid]: {said}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "file"), [("DotEnvSettingsSource", ".env"), ("TomlConfigSettingsSource", "openbook.toml")]
)
def test_a_file_that_cannot_be_read_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, source: str, file: str) -> None:
    def refused(settings: object) -> None:
        raise PermissionError(13, "Permission denied", file)

    monkeypatch.setattr(f"openbook.settings.{source}", refused)
    ended = run("serve")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"error [setting_invalid]: {file}: [Errno 13] Permission denied: '{file}'\n"


def test_an_error_does_not_repeat_a_secret(run: Run) -> None:
    Path("openbook.toml").write_text("admin_token = 271828")
    ended = run("serve")
    assert ended.err == "error [setting_invalid]: admin_token in openbook.toml: must be a valid string\n"


@pytest.mark.parametrize("names", ["*", "books.example.org:8000, ::1", "[::1]:8000", "bücher.example", " , a-b_c"])
def test_names_addresses_and_ports_are_hosts(names: str) -> None:
    assert read_settings(allowed_hosts=names).allowed_hosts == names


@pytest.mark.parametrize(
    "origins",
    [
        *("*", "docs.example.org", "https://docs.example.org/", "https://Docs.example.org", "https://*.example.org"),
        *("https://docs.example.org:443", "http://127.0.0.1:80", "null", "https://a.example;https://b.example"),
        *("file://", "https://user@docs.example.org", "https://docs.example.org:", "https://docs.example.org,http://"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(origins: str) -> None:
    with pytest.raises(SettingInvalid, match=r"^--allowed-origins: .* is no origin as a browser sends it: give scheme"):
        read_settings(allowed_origins=origins)


@pytest.mark.parametrize(
    "origins", ["https://docs.example.org", "http://localhost:3000, http://[::1]:8080,", "http://127.0.0.1:443", " , "]
)
def test_origins_are_taken_as_browsers_send_them(origins: str) -> None:
    assert read_settings(allowed_origins=origins).allowed_origins == origins


def test_an_address_that_no_path_can_follow_is_refused() -> None:
    for url in ("books.example.org", "ftp://books.example.org", "https://", "https://a.example/?x=1", "https://a b"):
        with pytest.raises(SettingInvalid, match=r"^--public-url: .* is no address that a path can follow"):
            read_settings(public_url=url)
    for url in ("https://books.example.org", "http://192.168.1.5:8000/ask/"):
        assert read_settings(public_url=url).public_url == url


@pytest.mark.parametrize("command", MAKERS, ids=lambda command: str(command.__name__))
def test_every_number_of_an_index_is_an_option_of_what_makes_one(command: Callable[..., object]) -> None:
    assert {name for names in NUMBERS.values() for name in names} <= set(inspect.signature(command).parameters)


def test_a_number_reaches_the_index_that_it_is_for(run: Run) -> None:
    ended = run("bench", "index", "--type", "hnsw", "--ef-construction", 7, "--passages", 1000)
    assert ended.code == 2
    assert "ef_construction: must be from 8 to 4,096, not 7" in ended.err
