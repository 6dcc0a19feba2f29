"""The accepted forms of an answer, the articles' own form first. None of a fact that is missing."""

from openbook_lab.encyclopedia.grammar import number, place
from openbook_lab.encyclopedia.world import Country, World


def holder_answers(holder: str, world: World) -> tuple[str, ...]:
    """The holder as the articles spell the name, then the shorter and better known forms."""
    common = world.common_name(holder)
    words = holder.split()
    without_initials = " ".join(word for word in words if not (len(word) == 2 and word.endswith(".")))
    return unique(holder, common, without_initials)


def unique(*answers: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(answer for answer in answers if answer))


def counts(value: int | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return unique(number(value), str(value), f"{value / 1e6:.1f} million" if value >= 1e6 else None)


def money(value: str | None) -> tuple[str, ...]:
    return () if value is None else unique(value, value.removeprefix("$"), f"{value.removeprefix('$')} dollars")


def measured(value: str | None, *units: str) -> tuple[str, ...]:
    return () if value is None else unique(*(f"{value} {unit}" for unit in units), value)


def dates(value: str | None) -> tuple[str, ...]:
    return () if value is None else unique(value, value.split()[-1])


def placed(country: Country) -> list[str]:
    return [place(name) for name in country.borders]


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
