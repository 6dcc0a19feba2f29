"""The command openbook: its commands, and how an error ends it."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from openbook import __version__
from openbook.cli import index, swap
from openbook.cli.ask import ask
from openbook.cli.checkpoint import export, show
from openbook.cli.consoles import messages, printable
from openbook.cli.folder import COMMAND, FolderGroup, open_folder
from openbook.cli.options import group
from openbook.cli.serve import demo, serve
from openbook.errors import OpenbookError, SettingInvalid
from openbook.extensions import COMMANDS, extensions
from openbook_client.errors import OpenbookError as ClientError

FAILED = 1
USED_WRONGLY = 2
LAB_COMMANDS = ("train", "calibrate", "eval", "bench")
ANY_ARGUMENTS = {"ignore_unknown_options": True, "help_option_names": []}


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="openbook",
        cls=FolderGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        # boxes leave an option's help a third of the line
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(openbook)
    app.command(name=COMMAND)(open_folder)
    app.command()(serve)
    app.command()(ask)
    of_index = "The versions of the index: those on the disk, and the one that is served."
    app.command()(demo)
    # plug-ins add to them: `checkpoint compose`, `checkpoint average` of the lab, `index pull`
    groups = {
        "index": group(of_index, {**index.COMMANDS, **swap.COMMANDS}),
        "checkpoint": group("Checkpoints: made of parts, exported, averaged.", {"show": show, "export": export}),
    }
    _add_extensions(app, groups)
    for name, commands in groups.items():
        app.add_typer(commands, name=name)
    return app


def _add_extensions(app: typer.Typer, groups: dict[str, typer.Typer]) -> None:
    """Add the commands of other packages. Where the lab is not installed, its commands say what to install."""
    found = extensions(COMMANDS)
    for name, extension in found.items():
        parent, _, leaf = name.rpartition(".")
        try:
            command = extension.load()
        except Exception as error:
            # a broken package takes its own command with it, and no other
            broken = _missing(name, f"cannot be loaded from {extension.value}: {error!r}")
            (groups[parent] if parent else app).command(name=leaf, context_settings=ANY_ARGUMENTS)(broken)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            (groups[parent] if parent else app).command(name=leaf)(command)
    for name in LAB_COMMANDS:
        if name not in found:
            missing = _missing(name, "comes with another package: pip install 'openbook[lab]'")
            app.command(name=name, hidden=True, context_settings=ANY_ARGUMENTS)(missing)


def _missing(name: str, reason: str) -> Callable[..., None]:
    def command(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        """Cannot be used here: run it to see why."""
        raise SettingInvalid(setting=f"openbook {name.replace('.', ' ')}", reason=reason)

    return command


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process: 0 done, 1 an error, 2 used wrongly, 130 interrupted."""
    try:
        build()(arguments, prog_name="openbook")
    except (OpenbookError, ClientError) as error:
        _complain(error.code, str(error))
        sys.exit(USED_WRONGLY if isinstance(error, SettingInvalid) else FAILED)
    except OSError as error:
        # a folder that may not be read, a full disk: the system's own sentence says it best
        _complain("system_error", str(error))
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def openbook(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=lambda given: _show_version(given), help="Show it.")
    ] = False,
) -> None:
    """Question answering with an open book: answers that show their passages, from an index that can be swapped.

    Begin with: openbook FOLDER, which is openbook open FOLDER; or openbook demo, then openbook ask QUESTION.
    """


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"openbook {__version__}")
        raise typer.Exit


def _complain(code: str, sentence: str) -> None:
    messages().print(f"error [{code}]: {printable(sentence)}", style="red", markup=False, soft_wrap=True)
