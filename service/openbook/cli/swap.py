"""openbook index: swap, rollback, load, status, history: of the service that runs, over HTTP"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.text import Text

from openbook.cli.client import reading_service, revealed, running_service, url_of
from openbook.cli.consoles import megabytes, output, print_json, printable, say, table
from openbook.cli.options import URL, argument, option, with_options
from openbook.cli.progress import StageBars
from openbook.errors import BrokenAnswer
from openbook.settings import Settings
from openbook.storage.verification import Verification
from openbook_client import Openbook, OpenbookError, results
from openbook_client.calls import RollbackOptions
from openbook_client.errors import GuardFailed, NotReady
from openbook_client.results import Loaded, Swapped, SwapProgress

C = TypeVar("C", bound=Swapped | Loaded | SwapProgress)

SECONDS_BETWEEN_LOOKS = 0.25


@dataclass(frozen=True, slots=True)
class Target:
    """The service that is asked, and how its answer is printed."""

    url: str | None = URL
    as_json: bool = option(False, "Print JSON.", "--json")

    def service(self, settings: Settings) -> Openbook:
        return reading_service(self.url or url_of(settings), settings)


@dataclass(frozen=True, slots=True)
class Administration(Target):
    """A service that is asked with the admin token, which only the environment gives."""

    def service(self, settings: Settings, actor: str | None = None) -> Openbook:
        """Raises SettingInvalid for a token or a name that no header can carry, before anything is sent."""
        return running_service(
            self.url or url_of(settings),
            timeout_s=settings.timeout_s,
            token=revealed(settings.admin_token),
            actor=actor,
        )


@dataclass(frozen=True, slots=True)
class Change(Administration):
    """How a version is opened."""

    verify: Verification = option("manifest", "manifest compares sizes and counts, checksum reads every byte.")
    no_wait: bool = option(False, "Begin and return; openbook index status shows the progress.")
    actor: str | None = option(None, "Who you are, for the history; without it, it keeps the address of this machine.")

    def make(
        self,
        settings: Settings,
        finish: Callable[[Openbook], C],
        begin: Callable[[Openbook], SwapProgress],
    ) -> C | None:
        """Ask for the change and show its stages. None where JSON was printed, or the change goes on without us."""
        with self.service(settings, self.actor) as service:
            change = begin if self.no_wait else finish
            report = _waited(service, lambda: change(service))
        if self.as_json:
            print_json(report.body())
        elif isinstance(report, SwapProgress):
            version = report.version or "the version before"
            say(f"{version}: begun; openbook index status tells how it goes and ends")
        else:
            return report
        return None


@dataclass(frozen=True, slots=True)
class Swap(Change):
    """How another version becomes the live one."""

    policy: Literal["availability", "resource"] | None = option(
        None,
        "availability loads beside the live index, resource lets that go first and refuses questions "
        "meanwhile; without it, the service's own setting.",
    )

    @property
    def how(self) -> RollbackOptions:
        return {"verify": self.verify, "policy": self.policy}

    def show(self, report: Swapped | None) -> None:
        if report is None:
            return
        came_from = f" (before: {report.previous})" if report.previous else ""
        output().print(
            f"{report.version} is live, generation {report.generation}{came_from}, "
            f"after {report.seconds['total']:.3f} s",
            markup=False,
        )
        if not report.durable:
            say("CURRENT could not be written: a restart will load another version", "yellow")


@with_options
def swap(
    settings: Settings,
    options: Swap,
    version: str = argument("VERSION", "The version to serve from now on."),
    guard: bool | None = option(
        None,
        "Whether guarded answers of the version must hold first; without it, where the service has a guard.",
        "--guard/--no-guard",
    ),
    force: bool = option(False, "Swap although guarded answers break; the history says so."),
) -> None:
    """Replace the index of a running service, without a restart.

    Shows each stage while it waits. A swap that fails leaves the live index: openbook index status shows which it is.
    Ctrl-C ends the waiting and not the swap.
    """
    how = options.how
    try:
        report = options.make(
            settings,
            lambda service: service.swap(version, **how, guard=guard, force=force),
            lambda service: service.begin_swap(version, **how, guard=guard, force=force),
        )
    except GuardFailed as error:
        say_broken(error.broken)
        raise
    options.show(report)


@with_options
def rollback(settings: Settings, options: Swap) -> None:
    """Go back to the version that was live before the last swap.

    A second rollback leads back again. After a restart the history tells which version that was.
    """
    how = options.how
    options.show(
        options.make(settings, lambda service: service.rollback(**how), lambda service: service.begin_rollback(**how))
    )


@with_options
def load(
    settings: Settings,
    options: Change,
    version: str = argument("VERSION", "The version to open."),
) -> None:
    """Open a version beside the live one, which stays live.

    Questions may then name it (openbook ask --index, --compare), and a swap to it takes no time. Where no more versions
    may be open (OPENBOOK_RESIDENTS), the service closes the one that was read least recently.
    """
    report = options.make(
        settings,
        lambda service: service.load(version, verify=options.verify),
        lambda service: service.begin_load(version, verify=options.verify),
    )
    if report is not None:
        output().print(f"{report.version} is open, after {report.seconds['total']:.3f} s", markup=False)


@with_options
def status(settings: Settings, options: Target) -> None:
    """Show what a running service serves.

    That is: the live version, those that are open, those on disk, and the swap under way or how the last one ended.
    Needs no token. A service that cannot serve what CURRENT names says which version, why, and since when.
    """
    following = None
    with options.service(settings) as service:
        # during a swap with policy resource nothing is live, which the rest shows
        with suppress(NotReady):
            following = service.ready().body()["following"]
        content = {"index": service.index().body(), "swap": service.progress().body(), "following": following}
    if options.as_json:
        print_json(content)
    else:
        show_status(content, output())


@with_options
def history(
    settings: Settings,
    options: Administration,
    limit: int = option(20, "Number of swaps to show.", min=1, max=1000),
) -> None:
    """List the swaps of a running service, newest first.

    Who swapped what, when, and with which outcome: of every service on the same folder of indexes, with the swaps that
    were refused or failed.
    """
    with options.service(settings) as service:
        content = service.history(limit).body()
    if options.as_json:
        print_json(content)
    elif content["swaps"]:
        show_history(content["swaps"], output())
    else:
        say("no swap so far")


COMMANDS = {"swap": swap, "rollback": rollback, "load": load, "status": status, "history": history}


def say_broken(broken: Sequence[BrokenAnswer | results.BrokenAnswer]) -> None:
    """The guarded questions of a refused version."""
    for one in broken:
        before, after = ("no answer" if said is None else repr(said) for said in (one.before, one.after))
        say(printable(f"{one.question}: {one.broken}; now {after}, before {before}"), "yellow")


def _waited(service: Openbook, change: Callable[[], C]) -> C:
    """The answer to the change; its stages are shown until then."""
    answer: Future[C] = Future()

    def call() -> None:
        try:
            answer.set_result(change())
        except BaseException as error:
            answer.set_exception(error)

    # a daemon: Ctrl-C need not wait for the answer
    threading.Thread(target=call, daemon=True).start()
    try:
        with StageBars() as bars:
            while not wait([answer], SECONDS_BETWEEN_LOOKS).done:
                _look(service, bars)
    except KeyboardInterrupt:
        say("the swap continues without this command; openbook index status shows the progress")
        raise
    return answer.result()


def _look(service: Openbook, bars: StageBars) -> None:
    try:
        progress = service.progress()
    except OpenbookError:
        # the call itself will say what is wrong, if anything is
        return
    if progress.state == "running" and progress.stage is not None:
        bars.show(progress.stage, progress.fraction)


def show_status(content: Mapping[str, Any], console: Console) -> None:
    """Print GET /index, GET /index/swap and what GET /readyz says of following CURRENT."""
    index = content["index"]
    live = index["live"]
    if live is None:
        console.print("nothing is live", style="red")
    else:
        console.print(
            f"{live['version']} is live, generation {live['generation']}, {index['checkpoint']}", markup=False
        )
    opened = {one["version"] for one in index["resident"]}
    rows = [
        (
            one["version"],
            one["snapshot_date"],
            "live" if one["live"] else "closing" if one["retiring"] else "open",
            str(one["leases"]),
            megabytes(one["bytes"]),
        )
        for one in index["resident"]
    ]
    rows += [(version, "", "on disk", "", "") for version in index["versions"] if version not in opened]
    console.print(table(("version", "date", "state", "questions", "MB"), rows, right=("questions", "MB")))
    console.print(Text(_progress(content["swap"])))
    console.print(_following(content["following"]))


def show_history(swaps: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the records of GET /index/history."""
    rows = [
        (
            one["time"],
            one["previous"],
            one["version"],
            one["policy"],
            Text(printable(one["outcome"]), style="" if one["outcome"] == "ok" else "red"),
            f"{one['seconds']:.3f}",
            one["actor"],
            one["replica"],
        )
        for one in swaps
    ]
    columns = ("time", "from", "to", "policy", "outcome", "seconds", "by", "on")
    console.print(table(columns, rows, right=("seconds",), folded=("by", "on")))


def _progress(progress: Mapping[str, Any]) -> str:
    """One sentence on the swap under way, or the last one."""
    if progress["state"] == "idle":
        return "no swap since the start"
    doing = "loading" if progress["policy"] == "load" else "swap to"
    what = printable(f"{doing} {progress['version'] or 'the version before'}")
    seconds = f"{progress['seconds'].get('total', 0.0):.3f} s"
    if progress["state"] == "done":
        return f"{what}: done after {seconds}, begun {progress['started_at']}"
    stage = progress["stage"] or "about to begin"
    if progress["state"] == "running":
        share = "" if progress["fraction"] is None else f" {progress['fraction']:.0%}"
        return f"{what}: {stage}{share}, for {seconds}"
    return printable(f"{what}: failed in {stage} [{progress['code']}]: {progress['detail']}")


def _following(following: Mapping[str, Any] | None) -> Text:
    if following is None:
        return Text("CURRENT is not followed, or nothing is live", style="dim")
    if following["ok"]:
        return Text("CURRENT is followed", style="dim")
    return Text(
        printable(
            f"CURRENT names {following['wanted']}, which cannot be served since {following['since']} "
            f"[{following['code']}]: {following['detail']}"
        ),
        style="red",
    )
