"""Options that are settings: name, type, help, default and environment variable are those of Settings."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Optional, TypeVar

import typer
from pydantic import ValidationError

from openbook.errors import SettingInvalid
from openbook.settings import Settings

T = TypeVar("T")

Url = Annotated[
    str | None,
    typer.Option(help="Where the service runs; without it, where OPENBOOK_HOST and OPENBOOK_PORT say, or port 8000."),
]


def takes_settings(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command one option for each of these settings; the command itself takes `settings: Settings`.

    An option that is left out is read from the environment, and then from the default, by Settings alone.
    """

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        return gathers(command, "settings", [_parameter(name) for name in names], _chosen_settings)

    return decorate


def gathers(
    command: Callable[..., T],
    argument: str,
    options: Sequence[inspect.Parameter],
    gather: Callable[[dict[str, Any]], Any],
) -> Callable[..., T]:
    """`command` with these options behind its own, in place of its `argument`, which `gather` makes of them."""
    signature = inspect.signature(command)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != argument]
    parameters = [*own, *options]

    @functools.wraps(command)
    def run(**given: Any) -> T:
        gathered = {option.name: given.pop(option.name) for option in options}
        return command(**given, **{argument: gather(gathered)})

    # typer reads both
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _chosen_settings(given: dict[str, Any]) -> Settings:
    return read_settings(**{name: value for name, value in given.items() if value is not None})


def read_settings(**given: Any) -> Settings:
    """The settings with what was given on the command line. Raises SettingInvalid for the first that is wrong."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingInvalid(
            setting=flag(name) if name in given else environment_name(name),
            reason=f"{first['msg'].replace('Input should', 'must', 1)}, not {first['input']!r}",
        ) from error


def flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def environment_name(setting: str) -> str:
    return f"{Settings.model_config['env_prefix']}{setting.upper()}"


def describe(setting: str) -> str:
    """The help of a setting's option."""
    field = Settings.model_fields[setting]
    default = "" if field.default is None or field.default_factory is not None else f", default: {field.default}"
    return f"{field.description} [env: {environment_name(setting)}{default}]"


def _parameter(setting: str) -> inspect.Parameter:
    option = typer.Option(flag(setting), help=describe(setting), show_default=False)
    return inspect.Parameter(
        setting,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Optional[Settings.model_fields[setting].annotation], option],  # noqa: UP045
    )


def check_token(token: str, setting: str) -> None:
    """Raise SettingInvalid for an admin token that no HTTP header carries unchanged. Its text is never repeated.

    Characters outside ASCII are sent as UTF-8; a lone surrogate stands for a byte of the environment and goes as that.
    """
    if any(character < " " or character == "\x7f" for character in token):
        raise SettingInvalid(setting=setting, reason="holds a control character, which no HTTP header can carry")
    if token != token.strip(" "):
        raise SettingInvalid(setting=setting, reason="begins or ends with a space, which no HTTP header keeps")
    try:
        token.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise SettingInvalid(setting=setting, reason="holds half of a surrogate pair, which is no character") from error
