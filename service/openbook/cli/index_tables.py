"""What a running service serves, and the history of its swaps, for people."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import printable

MEGABYTE = 1_000_000


def show_status(content: dict[str, Any], console: Console) -> None:
    """Print GET /index, GET /index/swap and what /readyz says of following CURRENT."""
    index = content["index"]
    live = index["live"]
    if live is None:
        console.print("nothing is live", style="red")
    else:
        console.print(
            f"{live['version']} is live, generation {live['generation']}, {index['checkpoint']}", markup=False
        )
    console.print(_residents(index))
    console.print(Text(_swap(content["swap"])))
    console.print(_following(content["following"]))


def show_history(swaps: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the records of GET /index/history."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("time", "from", "to", "policy", "outcome"):
        table.add_column(column, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("by")
    table.add_column("on")
    for one in swaps:
        table.add_row(
            Text(printable(one["time"])),
            Text(printable(one["previous"] or "")),
            Text(printable(one["version"])),
            Text(printable(one["policy"])),
            Text(printable(one["outcome"]), style="" if one["outcome"] == "ok" else "red"),
            f"{one['seconds']:.3f}",
            Text(printable(one["actor"])),
            Text(printable(one["replica"])),
        )
    console.print(table)


def _residents(index: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("version", no_wrap=True)
    table.add_column("date", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("questions", justify="right", no_wrap=True)
    table.add_column("MB", justify="right", no_wrap=True)
    for one in index["resident"]:
        state = "live" if one["live"] else "closing" if one["retiring"] else "open"
        table.add_row(
            Text(printable(one["version"])),
            one["snapshot_date"] or "",
            state,
            str(one["leases"]),
            f"{one['bytes'] / MEGABYTE:,.1f}",
        )
    opened = {one["version"] for one in index["resident"]}
    for version in index["versions"]:
        if version not in opened:
            table.add_row(Text(printable(version)), "", "on disk", "", "")
    return table


def _swap(progress: dict[str, Any]) -> str:
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


def _following(following: dict[str, Any] | None) -> Text:
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
