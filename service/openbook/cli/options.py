"""The options of a command: its own parameters, and the fields of the frozen objects that it takes."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, cast, get_args, get_origin

import typer
from pydantic import SecretStr, ValidationError

from openbook.errors import SettingInvalid
from openbook.settings import FILE, Settings, misspelt, places, settings_class

T = TypeVar("T")

# The default of an option that must be given.
REQUIRED: Any = MISSING


def option(default: T, help: str, *names: str, **more: Any) -> T:
    """An option, as the default of a command's parameter or of a dataclass's field. Its name is theirs, or `names`.

    `more` is typer.Option's. A bool that is False by default is a flag.
    """
    made = functools.partial(typer.Option, help=help, **more)
    return field(default=default, metadata={"typer": lambda name: made(*(names or (flag(name),)))})


def argument(metavar: str, help: str, default: Any = REQUIRED) -> Any:
    """Likewise an argument, which has a place and no name."""
    return field(default=default, metadata={"typer": lambda _: typer.Argument(metavar=metavar, help=help)})


URL = option(
    cast(str | None, None),
    "Where the service runs; without it, where OPENBOOK_HOST and OPENBOOK_PORT say, or port 8000.",
)


def with_options(command: Callable[..., T]) -> Callable[..., T]:
    """`command` as typer takes it: each parameter is an option, and of an object each of its fields.

    An object is a frozen dataclass, or Settings: `settings: Annotated[Settings, "indexes", "device"]` makes an option
    of each setting that it names, and the environment decides a setting whose option is left out. A dataclass may name
    some of its fields likewise, and a mapping among the names gives fields other defaults. A `tuple[X, ...]` may be
    given again and again, and here X may be a Literal. The command's own options come first in its help.
    """
    own: list[inspect.Parameter] = []
    defaults: dict[str, Any] = {}
    objects: dict[str, tuple[Callable[..., object], list[inspect.Parameter]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind, *names = get_args(parameter.annotation) or (parameter.annotation,)
        if kind is Settings:
            objects[parameter.name] = (read_settings, [_setting(name) for name in names])
        elif is_dataclass(kind):
            other = {field: value for name in names if isinstance(name, Mapping) for field, value in name.items()}
            declared = [one for one in fields(kind) if not names or one.name in (*names, *other)]
            options = [_parameter(one.name, one.type, one, other.get(one.name, one.default)) for one in declared]
            objects[parameter.name] = (functools.partial(cast(Callable[..., object], kind), **other), options)
        else:
            own.append(_parameter(parameter.name, parameter.annotation, parameter.default, parameter.default.default))
            defaults[parameter.name] = parameter.default.default
    parameters = [*own, *(option for _, options in objects.values() for option in options)]

    @functools.wraps(command)
    def run(**given: Any) -> T:
        made = {name: make(**_taken(given, options)) for name, (make, options) in objects.items()}
        return command(**(defaults | _taken(given, own) | made))

    # typer reads both
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(name: str, kind: Any, declared: "Field[Any]", default: Any) -> inspect.Parameter:
    """One of typer's parameters. What may be given again and again is a list there, which is None by default."""
    info = declared.metadata["typer"](name)
    is_required = default is MISSING
    default = inspect.Parameter.empty if is_required else default
    if get_origin(kind) is tuple:
        (one, _) = get_args(kind)
        # typer takes a list of enumerated values, but of no literals
        values = [(value, value) for value in get_args(one)]
        kind = list[StrEnum(name, values) if values else one]  # type: ignore[misc]
        if not is_required:
            kind, default = Optional[kind], None  # noqa: UP045
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _setting(name: str) -> inspect.Parameter:
    info = typer.Option(flag(name), help=describe(name), show_default=False)
    kind: Any = Optional[settings_class().model_fields[name].annotation]  # noqa: UP045
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info])


def _taken(given: Mapping[str, Any], options: list[inspect.Parameter]) -> dict[str, Any]:
    """What was given of these options. A list becomes a tuple."""
    taken: dict[str, Any] = {}
    for option in options:
        # another command calls this one with the options that it has
        value = given.get(option.name)
        if isinstance(value, list):
            value = tuple(one.value if isinstance(one, StrEnum) else one for one in value) or None
        if value is not None:
            taken[option.name] = value
    return taken


def group(help: str, commands: Mapping[str, Callable[..., object]]) -> typer.Typer:
    """A group of commands by their names."""
    made = typer.Typer(no_args_is_help=True, help=help)
    for name, command in commands.items():
        made.command(name=name)(command)
    # even a group of one command stays a group
    made.callback()(lambda: None)
    return made


def read_settings(**given: Any) -> Settings:
    """The settings with what was given on the command line. Raises SettingInvalid for the first that is wrong, or is no
    setting at all.
    """
    for place, nearest in misspelt().items():
        meant = nearest if place.endswith(FILE) else environment_name(nearest)
        raise SettingInvalid(setting=place, reason=f"there is no such setting. Is {meant} meant?")
    try:
        return settings_class()(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "value_error":
            reason = str(first["ctx"]["error"])
        else:
            kind = settings_class().model_fields[name].annotation
            # an error may land in a log: it repeats no secret
            wrong = "" if SecretStr in (kind, *get_args(kind)) else f", not {first['input']!r}"
            reason = f"{first['msg'].replace('Input should', 'must', 1)}{wrong}"
        place = next((place for place, setting in places().items() if setting == name), environment_name(name))
        raise SettingInvalid(setting=flag(name) if name in given else place, reason=reason) from error


def flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def environment_name(setting: str) -> str:
    return f"{Settings.model_config['env_prefix']}{setting.upper()}"


def describe(setting: str) -> str:
    """The help of a setting's option."""
    field = settings_class().model_fields[setting]
    has_none = field.default is None or field.default_factory is not None
    default = "" if has_none else f", default: {field.default}"
    return f"{field.description} [env: {environment_name(setting)}{default}]"


# Callbacks of options that name what a command writes: a bad place is refused before the work, not after.


def file_to_write(path: Path | None) -> Path | None:
    """Make the folder of a file. Raises BadParameter for a file that cannot be written."""
    if path is None:
        return None
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder")
    if not path.exists():
        folder_to_fill(path.parent)
    elif not os.access(path, os.W_OK):
        raise typer.BadParameter(f"{path} may not be written")
    return path


def ending_in(*endings: str) -> Callable[[Path | None], Path | None]:
    """As file_to_write, for a file whose kind its ending says."""

    def checked(path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in endings:
            raise typer.BadParameter(f"{path} does not end in {' or '.join(endings)}")
        return file_to_write(path)

    return checked


svg_to_write, plot_to_write = ending_in(".svg"), ending_in(".png", ".svg")


def folder_to_fill(path: Path | None) -> Path | None:
    """Make a folder. Raises BadParameter for one that cannot be written to."""
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"the folder {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"nothing may be written in {path}")
    return path
