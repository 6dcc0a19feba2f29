"""openbook serve, demo"""

import json
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from openbook import __version__
from openbook.cli.client import as_settings, quieten_libraries, revealed, url_of, without_collecting
from openbook.cli.consoles import output, say
from openbook.cli.options import environment_name, option, with_options
from openbook.entities import IndexInfo
from openbook.errors import SettingInvalid, StoreUnreachable
from openbook.extensions import checkpoint_folder
from openbook.settings import Settings, settings_class
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import folder_of, store_of
from openbook.storage.placing import place_copy
from openbook_client.wire import check_token

# What brings the versions of the demo. The first becomes CURRENT where there is none.
DEMO_PACKAGE = "openbook-mini"
DEMO_VERSIONS = ("wiki-2016", "wiki-2018")
DEMO_TOKEN = "openbook-demo"
DEMO_QUESTION = "Who is the President of Peru?"
# To an index of which nothing is known.
OWN_QUESTION = "What does my text say?"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@with_options
def serve(
    # a secret does not belong on a command line, where every process of the machine can read it
    settings: Annotated[
        Settings,
        *(name for name, field in settings_class().model_fields.items() if field.annotation != SecretStr | None),
    ],
    demo: bool = option(False, f"Allow swaps with the public token '{DEMO_TOKEN}', from this machine only."),
) -> None:
    """Serve questions over HTTP until told to end.

    POST /index/swap needs an admin token, which only the environment can give: OPENBOOK_ADMIN_TOKEN.
    """
    serve_settings(_with_demo_token(settings) if demo else settings)


@with_options
def demo(settings: Annotated[Settings, "checkpoint", "indexes", "host", "port"]) -> None:
    """Serve a small encyclopedia of 2016, and let an administrator swap in the one of 2018.

    Copies the two versions from the package openbook-mini to --indexes if they are missing, then is serve --demo. The
    environment sets what has no option here.
    """
    provide(folder_of(settings, "openbook demo"))
    serve_settings(_with_demo_token(settings))


def provide(store: IndexStore) -> None:
    """Put the demo's versions into the store. Raises SettingInvalid where neither it nor a package has them."""
    there = store.versions()
    for version in DEMO_VERSIONS:
        if version not in there:
            place_copy(store, _packaged(version))
            say(f"copied {version} to {store.folder}")
    if store.current() is None:
        store.set_current(DEMO_VERSIONS[0])


def _packaged(version: str) -> Path:
    package = checkpoint_folder(DEMO_PACKAGE)
    folder = None if package is None else package / "indexes" / version
    if folder is None or not folder.is_dir():
        raise SettingInvalid(setting=version, reason="comes with another package: pip install 'openbook[mini]'")
    return folder


def serve_settings(settings: Settings) -> None:
    """Check all that can be checked without the checkpoint, then load it and serve."""
    _check_admin_token(settings)
    settings.followed_every_s()
    store = store_of(settings)
    try:
        version = settings.index or store.default_version()
        reads = described(store.info(version))
    except StoreUnreachable:
        # the service says so, and tries again
        version = reads = settings.index or "what CURRENT names"
    check_port(settings)
    others = [other for other in store.versions() if other != version]
    output().print(welcome(settings, version, others, reads), markup=False, soft_wrap=True)
    sys.stdout.flush()

    with without_collecting():
        from openbook.api import server

    quieten_libraries()
    raise typer.Exit(server.serve(settings))


def _with_demo_token(settings: Settings) -> Settings:
    if revealed(settings.admin_token):
        return settings
    if settings.host not in LOOPBACK:
        raise SettingInvalid(
            setting="--demo",
            reason=f"its token is public, so it does not go with --host {settings.host}; set OPENBOOK_ADMIN_TOKEN",
        )
    return settings.model_copy(update={"admin_token": SecretStr(DEMO_TOKEN)})


def _check_admin_token(settings: Settings) -> None:
    """Find out now, not at the first swap, that no client can send the token."""
    token, name = revealed(settings.admin_token) or "", environment_name("admin_token")
    with as_settings(token=name):
        check_token(token)
    if not token.isascii():
        say(f"{name} holds characters outside ASCII: clients must send them as UTF-8, and browsers cannot.", "yellow")


def check_port(settings: Settings) -> None:
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


def described(info: IndexInfo) -> str:
    """wiki-2016 (2,884 passages of 2016-11-30). The date is the text's, or the build's where the text has none."""
    return f"{info.version} ({info.n_passages:,} passages of {info.snapshot_date or info.created_at[:10]})"


def welcome(settings: Settings, version: str, others: list[str], reads: str = "") -> str:
    """What is printed at the start: what is read, where it listens, and calls to try."""
    if settings.port == 0:
        return f"Openbook {__version__} reads {reads or version} with {settings.checkpoint}; the log names its port.\n"
    url, token = url_of(settings), revealed(settings.admin_token)
    question = DEMO_QUESTION if version in DEMO_VERSIONS else OWN_QUESTION
    lines = [
        f"Openbook {__version__} reads {reads or version} with {settings.checkpoint}; Ctrl-C ends it.",
        f"In a few seconds it listens on {url} (the page is there, the API at {url}/docs).",
        "",
        "Ask:",
        f"  {_curl(f'{url}/answer', {'question': question})}",
    ]
    if others and token:
        shown = token if token == DEMO_TOKEN else f"${environment_name('admin_token')}"
        swap = _curl(f"{url}/index/swap", {"version": others[-1]}, token=shown)
        lines += ["", f"Swap to {others[-1]}, then ask again:", f"  {swap}"]
    return "\n".join([*lines, ""])


def _curl(url: str, body: dict[str, str], token: str | None = None) -> str:
    bearer = "" if token is None else f' -H "authorization: Bearer {token}"'
    return f"curl {url}{bearer} -H 'content-type: application/json' -d '{json.dumps(body)}'"
