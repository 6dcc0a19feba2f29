"""What the tables say when countries are held beside one another: ranks, neighbours, shared languages and years.

Computed from one world, so that a comparison is as true as its table and changes only when a fact does.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from openbook_lab.encyclopedia.world import Country, Office, World

Measure = Callable[[Country], float | None]


def population(country: Country) -> float | None:
    return country.population


def gdp(country: Country) -> float | None:
    return country.gdp_dollars


def area(country: Country) -> float | None:
    return country.area


def life_expectancy(country: Country) -> float | None:
    return None if country.life_expectancy is None else float(country.life_expectancy)


def unemployment(country: Country) -> float | None:
    return None if country.unemployment_pct is None else float(country.unemployment_pct)


def elevation(country: Country) -> float | None:
    return None if country.highest_point_m is None else float(country.highest_point_m)


def density(country: Country) -> float | None:
    """People per square kilometre."""
    return country.population / country.area if country.population and country.area else None


def gdp_per_head(country: Country) -> float | None:
    return country.gdp_dollars / country.population if country.gdp_dollars and country.population else None


MEASURES: tuple[Measure, ...] = (
    population,
    gdp,
    area,
    life_expectancy,
    unemployment,
    elevation,
    density,
    gdp_per_head,
)


@dataclass(frozen=True, slots=True)
class Rank:
    """Place `place` of `of`, counted from the greatest; `above` and `below` are the next countries, if any."""

    place: int
    of: int
    above: Country | None
    below: Country | None


class Comparisons:
    """Ranks and groups of one world, worked out once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_name = {country.name: country for country in world.countries}
        self.regions: dict[str, list[Country]] = defaultdict(list)
        for country in world.countries:
            self.regions[country.region].append(country)
        self._offices: dict[str, list[Office]] = defaultdict(list)
        self._holdings: dict[str, list[Office]] = defaultdict(list)
        for office in world.offices:
            self._offices[office.country].append(office)
            self._holdings[office.holder].append(office)
        self._world_rows = {measure: self._sorted(world.countries, measure) for measure in MEASURES}
        self._region_rows = {
            (measure, region): self._sorted(countries, measure)
            for measure in MEASURES
            for region, countries in self.regions.items()
        }

    def offices_of(self, country: str) -> tuple[Office, ...]:
        return tuple(self._offices[country])

    def offices_held_by(self, holder: str) -> tuple[Office, ...]:
        return tuple(self._holdings[holder])

    def in_world(self, country: Country, measure: Measure) -> Rank | None:
        return self._rank(self._world_rows[measure], country)

    def in_region(self, country: Country, measure: Measure) -> Rank | None:
        return self._rank(self._region_rows[measure, country.region], country)

    def greatest(self, measure: Measure, region: str | None = None) -> list[Country]:
        """Countries that have the fact, the greatest first; ties in alphabetical order."""
        return self._world_rows[measure] if region is None else self._region_rows[measure, region]

    def neighbours(self, country: Country) -> list[Country]:
        """The bordering countries that have articles of their own."""
        return [self.by_name[name] for name in country.borders if name in self.by_name]

    @staticmethod
    def _sorted(countries: list[Country] | tuple[Country, ...], measure: Measure) -> list[Country]:
        valued = [(value, country) for country in countries if (value := measure(country)) is not None]
        return [country for _, country in sorted(valued, key=lambda pair: (-pair[0], pair[1].name))]

    @staticmethod
    def _rank(rows: list[Country], country: Country) -> Rank | None:
        for position, other in enumerate(rows):
            if other.name == country.name:
                above = rows[position - 1] if position else None
                below = rows[position + 1] if position + 1 < len(rows) else None
                return Rank(position + 1, len(rows), above, below)
        return None
