"""What the tables say when countries are compared: ranks, neighbours, regions.

They are computed from the tables of one world, and change only where a fact changes.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from openbook_lab.encyclopedia.grammar import Count, Text, ordinal
from openbook_lab.encyclopedia.world import Country, Office, World

# attributes of Country
Measure = Literal[
    "population",
    "gdp_dollars",
    "area",
    "life_expectancy",
    "unemployment_pct",
    "highest_point_m",
    "density",
    "gdp_per_head",
]


@dataclass(frozen=True, slots=True)
class Rank:
    """Place `place` of `of`, counted from the greatest; `above` and `below` name the next countries, if any."""

    place: int
    of: int
    above: Text
    below: Text

    @property
    def th(self) -> str:
        return ordinal(self.place)

    @property
    def nth(self) -> str:
        """Before a superlative: "" or "third "."""
        return "" if self.first else f"{self.th} "

    @property
    def ahead(self) -> Count:
        return Count(self.place - 1)

    @property
    def behind(self) -> Count:
        return Count(self.of - self.place)

    @property
    def first(self) -> bool:
        return self.place == 1

    @property
    def last(self) -> bool:
        return self.place == self.of

    @property
    def middle(self) -> bool:
        return self.of > 3 and not self.first and not self.last

    @property
    def halfway(self) -> bool:
        return self.ahead == self.behind


class Comparisons:
    """Ranks and groups of one world, computed once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_name = {country.name: country for country in world.countries}
        self.regions: dict[str, list[Country]] = defaultdict(list)
        for country in world.countries:
            self.regions[country.region].append(country)
        self.offices: dict[str, list[Office]] = defaultdict(list)
        self.holdings: dict[str, list[Office]] = defaultdict(list)
        for office in world.offices:
            self.offices[office.country].append(office)
            self.holdings[office.holder].append(office)
        self._rows: dict[tuple[Measure, str | None], list[Country]] = {
            (measure, region): _sorted(countries, measure)
            for measure in get_args(Measure)
            for region, countries in [(None, world.countries), *self.regions.items()]
        }

    def greatest(self, measure: Measure, region: str | None = None) -> list[Country]:
        """Countries of the region, or of the world, that have the fact: the greatest first, ties by name."""
        return self._rows[measure, region]

    def in_world(self, country: Country, measure: Measure) -> Rank | None:
        return _rank(self.greatest(measure), country)

    def in_region(self, country: Country, measure: Measure, at_least: int = 4) -> Rank | None:
        """The country's rank in its region; None where fewer than `at_least` countries have the fact."""
        rank = _rank(self.greatest(measure, country.region), country)
        return rank if rank and rank.of >= at_least else None

    def neighbours(self, country: Country) -> list[Country]:
        """The bordering countries that have articles of their own."""
        return [self.by_name[name] for name in country.borders if name in self.by_name]


def _sorted(countries: Iterable[Country], measure: Measure) -> list[Country]:
    valued = [(float(value), country) for country in countries if (value := getattr(country, measure)) is not None]
    return [country for _, country in sorted(valued, key=lambda pair: (-pair[0], pair[1].name))]


def _rank(rows: list[Country], country: Country) -> Rank | None:
    names = [other.name for other in rows]
    if country.name not in names:
        return None
    place = names.index(country.name)
    above = rows[place - 1].noun if place else ""
    below = rows[place + 1].noun if place + 1 < len(rows) else ""
    return Rank(place + 1, len(rows), Text(above), Text(below))
