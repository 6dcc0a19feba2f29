"""openbook index: swap, rollback, load, status, history: of the service that runs, over HTTP"""

import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from openbook.cli.client import Body, RunningService, url_of
from openbook.cli.consoles import messages, output, print_json
from openbook.cli.index_tables import show_history, show_status
from openbook.cli.options import Url, check_token, environment_name, takes_settings
from openbook.cli.progress import StageBars
from openbook.errors import OpenbookError, SettingInvalid
from openbook.settings import Settings
from openbook.storage.verification import Verification

app = typer.Typer()

SECONDS_BETWEEN_LOOKS = 0.25

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Token = Annotated[
    str | None,
    typer.Option(help=f"The service's admin token; without it, that of {environment_name('admin_token')}."),
]
Actor = Annotated[
    str | None, typer.Option(help="Who you are, for the history; without it, it keeps the address of this machine.")
]
Policy = Annotated[
    Literal["availability", "resource"] | None,
    typer.Option(
        help="availability loads beside the live index, resource lets that go first and refuses questions meanwhile; "
        "without it, the service's own setting."
    ),
]
Check = Annotated[
    Verification, typer.Option("--verify", help="manifest compares sizes and counts, checksum reads every byte.")
]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Begin and return; openbook index status tells how it goes and ends.")
]


@app.command()
@takes_settings()
def swap(
    settings: Settings,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version to serve from now on.")],
    url: Url = None,
    token: Token = None,
    policy: Policy = None,
    check: Check = "manifest",
    no_wait: NoWait = False,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Replace the index of a running service, without a restart.

    Shows each stage while it waits. Whatever fails leaves the index that was live: openbook index status shows which.
    Ctrl-C ends the waiting and not the swap.
    """
    service = _service(settings, url, token, actor)
    body = {"version": version, "policy": policy, "verify": check, "wait": not no_wait}
    _show_swap(_waited(service, lambda: service.swap(body)), as_json)


@app.command()
@takes_settings()
def rollback(
    settings: Settings,
    url: Url = None,
    token: Token = None,
    policy: Policy = None,
    check: Check = "manifest",
    no_wait: NoWait = False,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Go back to the version that was live before the last swap.

    A second rollback leads back again. After a restart the history tells which version that was.
    """
    service = _service(settings, url, token, actor)
    body = {"policy": policy, "verify": check, "wait": not no_wait}
    _show_swap(_waited(service, lambda: service.rollback(body)), as_json)


@app.command()
@takes_settings()
def load(
    settings: Settings,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version to open.")],
    url: Url = None,
    token: Token = None,
    check: Check = "manifest",
    no_wait: NoWait = False,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Open a version beside the live one, which stays live.

    Questions may then name it (openbook ask --index, --compare), and a swap to it takes no time. Where no more versions
    may be open (OPENBOOK_RESIDENTS), the one that was read least recently is closed.
    """
    service = _service(settings, url, token, actor)
    report = _waited(service, lambda: service.load({"version": version, "verify": check, "wait": not no_wait}))
    if as_json:
        print_json(report)
    elif not _only_begun(report):
        seconds = report["seconds"]["total"]
        output().print(f"{report['version']} is open, after {seconds:.3f} s", markup=False)


@app.command()
@takes_settings()
def status(settings: Settings, url: Url = None, as_json: AsJson = False) -> None:
    """Show what a running service serves.

    That is: the live version, those that are open, those on disk, and the swap under way or how the last one ended.
    Needs no token. A service that cannot serve what CURRENT names says which version, why, and since when.
    """
    service = _service(settings, url, None, None)
    ready: Body | None = None
    try:
        ready = service.ready()
    except OpenbookError as error:
        if error.data.get("code") != "not_ready":
            raise
        # during a swap with policy resource nothing is live, which the rest shows
    content = {"index": service.indexes(), "swap": service.progress(), "following": (ready or {}).get("following")}
    if as_json:
        print_json(content)
    else:
        show_status(content, output())


@app.command()
@takes_settings()
def history(
    settings: Settings,
    url: Url = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="The newest so many.", min=1, max=1000)] = 20,
    as_json: AsJson = False,
) -> None:
    """List the swaps of a running service, newest first.

    Who swapped what, when, and with which outcome: of every service on the same folder of indexes, those that were
    refused or failed among them.
    """
    content = _service(settings, url, token, None).history(limit)
    if as_json:
        print_json(content)
    elif content["swaps"]:
        show_history(content["swaps"], output())
    else:
        messages().print("no swap so far")


def _service(settings: Settings, url: str | None, token: str | None, actor: str | None) -> RunningService:
    """Raises SettingInvalid for a token or a name that no header can carry, before anything is sent."""
    setting = "--token"
    if token is None and settings.admin_token is not None:
        token, setting = settings.admin_token.get_secret_value(), environment_name("admin_token")
    if token:
        check_token(token, setting)
    if actor is not None and not actor.isprintable():
        raise SettingInvalid(setting="--actor", reason="holds a character that cannot be printed")
    return RunningService(url or url_of(settings), timeout_s=settings.timeout_s, token=token, actor=actor)


class _Call(threading.Thread):
    """A call that is made while this thread looks how it goes. A daemon: Ctrl-C need not wait for the answer."""

    def __init__(self, call: Callable[[], Body]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._answer: Body | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._error = error

    def answer(self) -> Body:
        """Once it has ended: what came back, or what it raised."""
        if self._error is not None:
            raise self._error
        return self._answer or {}


def _waited(service: RunningService, ask: Callable[[], Body]) -> Body:
    """What the call comes back with; its stages are shown until then."""
    call = _Call(ask)
    call.start()
    try:
        with StageBars() as bars:
            call.join(SECONDS_BETWEEN_LOOKS)
            while call.is_alive():
                _look(service, bars)
                call.join(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        messages().print("it goes on without this command; openbook index status tells how it ends")
        raise
    return call.answer()


def _look(service: RunningService, bars: StageBars) -> None:
    try:
        progress = service.progress()
    except OpenbookError:
        # the call itself will say what is wrong, if anything is
        return
    if progress["state"] == "running" and progress["stage"] is not None:
        bars.update(progress["stage"], progress["fraction"])


def _only_begun(report: dict[str, Any]) -> bool:
    """Whether `report` is that of a call that did not wait; then says so."""
    if "state" not in report:
        return False
    what = report["version"] or "the version before"
    messages().print(f"{what}: begun; openbook index status tells how it goes and ends", markup=False)
    return True


def _show_swap(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    if _only_begun(report):
        return
    came_from = f" (before: {report['previous']})" if report["previous"] else ""
    output().print(
        f"{report['version']} is live, generation {report['generation']}{came_from}, "
        f"after {report['seconds']['total']:.3f} s",
        markup=False,
    )
    if not report["durable"]:
        messages().print("CURRENT could not be written: a restart comes back on another version", style="yellow")
