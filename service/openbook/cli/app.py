"""The command openbook: its commands, and how an error ends it."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from openbook import __version__
from openbook.cli import checkpoint, index, index_bm25, swap
from openbook.cli.ask import ask
from openbook.cli.consoles import messages, printable
from openbook.cli.demo import demo
from openbook.cli.serve import serve
from openbook.errors import OpenbookError, ServerRefused, SettingInvalid
from openbook.extensions import COMMANDS, extensions

FAILED = 1
USED_WRONGLY = 2
LAB_COMMANDS = ("train", "eval", "bench")
ANY_ARGUMENTS = {"ignore_unknown_options": True, "help_option_names": []}


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="openbook",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        # boxes leave an option's help a third of the line
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(openbook)
    app.command()(serve)
    app.command()(ask)
    app.add_typer(_versions(), name="index")
    app.command()(demo)
    groups = {"checkpoint": checkpoint.build()}
    _add_extensions(app, groups)
    for name, group in groups.items():
        app.add_typer(group, name=name)
    return app


def _add_extensions(app: typer.Typer, groups: dict[str, typer.Typer]) -> None:
    """Add the commands of other packages; in the place of the lab's, where it is not installed, one that says so."""
    found = extensions(COMMANDS)
    for name, extension in found.items():
        command = extension.load()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            group, _, leaf = name.rpartition(".")
            (groups[group] if group else app).command(name=leaf)(command)
    for name in LAB_COMMANDS:
        if name not in found:
            app.command(name=name, hidden=True, context_settings=ANY_ARGUMENTS)(_missing(name))


def _missing(name: str) -> Callable[..., None]:
    def command(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise SettingInvalid(
            setting=f"openbook {name}", reason="comes with another package: pip install 'openbook[lab]'"
        )

    return command


def _versions() -> typer.Typer:
    """The commands on a folder of versions, and those on the index of a running service, as one group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="The versions of the index: the books that can be opened, and the one that is being served.",
    )
    group.add_typer(index.app)
    group.add_typer(index_bm25.app)
    group.add_typer(swap.app)
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process: 0 done, 1 an error, 2 used wrongly, 130 interrupted."""
    try:
        build()(arguments, prog_name="openbook")
    except OpenbookError as error:
        code, sentence = error.code, str(error)
        if isinstance(error, ServerRefused):
            code, sentence = error.data["code"], error.data["detail"]
        _complain(code, sentence)
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

    Begin with: openbook index build wiki-2016, then openbook serve, then openbook ask QUESTION.
    """


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"openbook {__version__}")
        raise typer.Exit


def _complain(code: str, sentence: str) -> None:
    messages().print(f"error [{code}]: {printable(sentence)}", style="red", markup=False, soft_wrap=True)
