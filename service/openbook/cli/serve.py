"""openbook serve"""

import json
import socket
import sys
from typing import Annotated, NoReturn

import typer
from pydantic import SecretStr

from openbook import __version__
from openbook.cli.client import quieten_libraries, url_of
from openbook.cli.consoles import messages, output
from openbook.cli.options import check_token, environment_name, takes_settings
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

DEMO_TOKEN = "openbook-demo"
DEMO_QUESTION = "Who is the President of Peru?"
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# A secret does not belong on a command line, where every process of the machine can read it.
OPTIONS = tuple(name for name in Settings.model_fields if name != "admin_token")


@takes_settings(*OPTIONS)
def serve(
    settings: Settings,
    demo: Annotated[
        bool, typer.Option("--demo", help=f"Allow swaps with the public token '{DEMO_TOKEN}', from this machine only.")
    ] = False,
) -> None:
    """Serve questions over HTTP until told to end.

    POST /index/swap needs an admin token, which only the environment can give: OPENBOOK_ADMIN_TOKEN.
    """
    start(settings, demo=demo)


def start(settings: Settings, *, demo: bool) -> NoReturn:
    """Check what can be known before the checkpoint is loaded, say how to ask, and serve. Ends in typer.Exit."""
    if demo:
        settings = _with_demo_token(settings)
    _check_admin_token(settings)
    store = IndexStore(settings.indexes)
    version = settings.index or store.default_version()
    store.info(version)
    _check_port(settings)
    others = [other for other in store.versions() if other != version]
    output().print(welcome(settings, version, others), markup=False, soft_wrap=True)
    sys.stdout.flush()

    from openbook.api import server

    quieten_libraries()
    raise typer.Exit(server.serve(settings))


def _with_demo_token(settings: Settings) -> Settings:
    if settings.admin_token is not None and settings.admin_token.get_secret_value():
        return settings
    if settings.host not in LOOPBACK:
        raise SettingInvalid(
            setting="--demo",
            reason=f"its token is public, so it does not go with --host {settings.host}; set OPENBOOK_ADMIN_TOKEN",
        )
    return settings.model_copy(update={"admin_token": SecretStr(DEMO_TOKEN)})


def _check_admin_token(settings: Settings) -> None:
    """Find out now, not at the first swap, that nobody can send the token."""
    token = settings.admin_token.get_secret_value() if settings.admin_token is not None else ""
    name = environment_name("admin_token")
    check_token(token, name)
    if not token.isascii():
        messages().print(
            f"{name} holds characters outside ASCII: clients must send them as UTF-8, and browsers cannot.",
            style="yellow",
            markup=False,
        )


def _check_port(settings: Settings) -> None:
    """Find out that the port is taken before the checkpoint is loaded, not after."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise SettingInvalid(
                setting="--port", reason=f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
            ) from error


def welcome(settings: Settings, version: str, others: list[str]) -> str:
    """What is printed at the start: what is read, where it listens, and calls to try."""
    if settings.port == 0:
        return f"Openbook {__version__} reads {version} with {settings.checkpoint}; the log names its port.\n"
    url = url_of(settings)
    ask = _curl(f"{url}/answer", {"question": DEMO_QUESTION})
    lines = [
        f"Openbook {__version__} reads {version} with {settings.checkpoint}; Ctrl-C ends it.",
        f"In a few seconds it listens on {url} (the page is there, the API at {url}/docs).",
        "",
        "Ask:",
        f"  {ask}",
    ]
    if others and settings.admin_token is not None and settings.admin_token.get_secret_value():
        public = settings.admin_token.get_secret_value() == DEMO_TOKEN
        token = DEMO_TOKEN if public else f"${environment_name('admin_token')}"
        swap = _curl(f"{url}/index/swap", {"version": others[-1]}, token=token)
        lines += ["", f"Swap to {others[-1]}, then ask again:", f"  {swap}"]
    return "\n".join([*lines, ""])


def _curl(url: str, body: dict[str, str], token: str | None = None) -> str:
    bearer = "" if token is None else f' -H "authorization: Bearer {token}"'
    return f"curl {url}{bearer} -H 'content-type: application/json' -d '{json.dumps(body)}'"
