"""A ranking as prose: the second and later places, in sentences that do not all run alike."""

from collections.abc import Callable, Iterator

from openbook_lab.encyclopedia.grammar import ordinal
from openbook_lab.encyclopedia.wording import Wording
from openbook_lab.encyclopedia.world import Country


def ranking(title: str, rows: list[Country], value: Callable[[Country], str]) -> Iterator[str]:
    """The second and later places of a ranking, in sentences that do not all run alike."""
    wording = Wording(title)
    for position, country in enumerate(rows[1:], start=2):
        before, noun, amount = rows[position - 2].noun, country.noun, value(country)
        if position == len(rows):
            yield wording.pick("last", [f"The list ends with {noun} ({amount}).", f"Last comes {noun}, with {amount}."])
            continue
        yield wording.pick(
            country.name,
            [
                f"In {ordinal(position)} place comes {noun}, with {amount}.",
                f"{noun} follows with {amount}.",
                f"Next is {noun} ({amount}).",
                f"After {before} comes {noun}, with {amount}.",
                f"{noun}, with {amount}, is number {position}.",
                f"It is followed by {noun}, with {amount}.",
            ],
        )
