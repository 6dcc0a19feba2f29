"""openbook FOLDER: from a folder of texts to the page that answers from it, in one command"""

import hashlib
import os
import re
import shlex
import socket
import sys
import threading
import time
import webbrowser
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from platformdirs import user_data_path
from typer.core import TyperGroup

from openbook.cli.client import url_of
from openbook.cli.consoles import say
from openbook.cli.index_build import Embedding, build, load_encoder
from openbook.cli.index_follow import LONGEST_STEM, CurrentLine, Follower, keep_looking, stem_of
from openbook.cli.options import argument, option, with_options
from openbook.cli.serve import check_port, serve_settings
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.settings import Settings, has_display
from openbook.storage.opening import folder_of

COMMAND = "open"
LOOK_EVERY_S = 3.0
# The version that is served, and one to go back to.
KEPT = 2


class FolderGroup(TyperGroup):
    """Takes the path of a folder for `open` with that folder. A command's name is the command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        first = args[0]
        if self.get_command(ctx, first) is None:
            # `os.path.exists` takes a name that is too long for one that is not there
            if os.sep not in first and not os.path.exists(first):  # noqa: PTH110
                near = " or ".join(map(repr, get_close_matches(first, self.list_commands(ctx))))
                meant = f" Did you mean {near}?" if near else ""
                ctx.fail(f"{first!r} is neither a command nor a folder or file here.{meant} Give the path of a folder.")
            args = [COMMAND, *args]
        return super().resolve_command(ctx, args)


@with_options
def open_folder(
    settings: Annotated[Settings, "checkpoint", "indexes", "host", "port", "device", "dtype", "threads"],
    folder: Path = argument("FOLDER", "Texts: Markdown, web pages, PDFs, Word, Excel, mails and more, at any depth."),
    name: str | None = option(None, "Name of the index. Default: the folder's."),
    encoder: str | None = option(
        None, "Passage encoder that the checkpoint expects: a folder or a hub id. Default: openbook-mini's."
    ),
    once: bool = option(False, "Build or update the index, and end."),
) -> None:
    """Ask a folder of your own: build its index, serve it, open the page, and keep up with what changes.

    `openbook FOLDER` is the same. Nothing is written into the folder: each one has a folder of indexes among your data,
    or the one that --indexes names, which must hold no other index.
    """
    folder = folder.expanduser()
    if not folder.is_dir():
        reason = "is a file: name the folder that it is in" if folder.exists() else "is no folder: it does not exist"
        raise SourceInvalid(source=str(folder), reason=reason)
    settings = settings.model_copy(update=_own(settings, folder, name))
    if not once:
        check_port(settings)
    store = folder_of(settings, f"openbook {COMMAND}")
    stem = name or name_of(folder)
    if others := [version for version in store.versions() if stem_of(version) != stem]:
        reason = f"{store.folder} holds {others[0]}, and {folder} needs a folder of indexes of its own"
        raise SettingInvalid(setting="--indexes", reason=reason)
    say(f"{folder} is read; its index lies in {store.folder}")
    fresh = not store.versions()
    if fresh:
        build(source=str(folder), name=stem, indexes=settings.indexes, device=settings.device, encoder=encoder)
    embedding = Embedding(encoder=encoder)
    follower = Follower(store, str(folder), CurrentLine(store), load_encoder(settings, embedding), keep=KEPT)
    with closing(follower):
        if not fresh:
            follower.look()
        if once:
            say(f'ask it: openbook ask --local --indexes {shlex.quote(str(store.folder))} "..."')
            return
        threading.Thread(target=_accompany, args=(settings, follower), name="follow-folder", daemon=True).start()
        serve_settings(settings)


def name_of(folder: Path) -> str:
    """A version's name that is the folder's, as far as its letters allow."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:LONGEST_STEM] or "folder"


def _own(settings: Settings, folder: Path, name: str | None) -> dict[str, object]:
    """What a service on this folder has other than `openbook serve`, where nobody asked for something else."""
    own: dict[str, object] = {"index": None}
    if "indexes" not in settings.model_fields_set:
        which = f"{folder.resolve()}\n{name or ''}"
        digest = hashlib.sha256(which.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        own["indexes"] = str(user_data_path("openbook") / "folders" / f"{name_of(folder)}-{digest}")
    # a person sits before it: what goes well needs no line
    return own | ({} if "log_level" in settings.model_fields_set else {"log_level": "warning"})


def _accompany(settings: Settings, follower: Follower) -> None:
    """Once the service listens, show the page, and follow the folder as long as the process lives."""
    address = (settings.host, settings.port)
    while settings.port:
        try:
            socket.create_connection(address, timeout=1).close()
            break
        except OSError:
            time.sleep(0.2)
    if settings.port and sys.stdout.isatty() and has_display():
        webbrowser.open(url_of(settings))
    keep_looking(follower, LOOK_EVERY_S)
