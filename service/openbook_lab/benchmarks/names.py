"""What can be measured, by the names that the options take."""

from typing import Literal, TypeVar, get_args

import typer

ContestantName = Literal[
    "openbook float32",
    "openbook bfloat16",
    "openbook int8",
    "transformers float32",
    "transformers bfloat16",
]
CONTESTANTS: tuple[ContestantName, ...] = get_args(ContestantName)
ModeName = Literal["token greedy", "token stepwise", "token beams", "sequence thorough", "sequence fast"]
MODES: tuple[ModeName, ...] = get_args(ModeName)
ShapeName = Literal["mini", "bart-large"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)

Name = TypeVar("Name", bound=str)


def chosen(given: str, known: tuple[Name, ...], option: str) -> tuple[Name, ...]:
    """The names in a list separated by commas. The first word of several stands for all of them."""
    names: dict[Name, None] = {}  # each once, in the order in which they were given
    for name in (one.strip() for one in given.split(",")):
        meant = [one for one in known if one == name or one.startswith(f"{name} ")]
        if not meant:
            raise typer.BadParameter(f"{name!r} is none of: {', '.join(known)}", param_hint=option)
        names |= dict.fromkeys(meant)
    return tuple(names)


def numbers(given: str, option: str) -> tuple[int, ...]:
    """Whole numbers above zero in a list separated by commas."""
    if not all(one.strip().isdecimal() and int(one) > 0 for one in given.split(",")):
        raise typer.BadParameter(f"{given!r} is no list of numbers above 0", param_hint=option)
    return tuple(int(one) for one in given.split(","))
