"""The facts of one year: countries, offices and their holders, read from the tables beside this file.

An absent value is None or empty. A name is spelt as in the table, without diacritics.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date
from importlib.resources import files
from typing import Any, get_origin

from openbook.errors import SourceInvalid

# the versions of the demo's index
DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}

MONARCHS = ("King", "Queen", "Emperor", "Emir", "Sultan", "Prince", "Grand Duke", "Pope")

# the table's founding event where a country declared its independence and no other state is named
DECLARATION = "the declaration of independence"

_YEAR = re.compile(r"\d{3,4}$")
_MAGNITUDES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}

# columns that have a value for each year; the others hold for both
_YEARLY = ("population", "life_expectancy", "unemployment_pct", "gdp_ppp")
# the fields of a country that their columns name otherwise
_COLUMNS = {"name": "country", "gdp": "gdp_ppp"}


@dataclass(frozen=True, slots=True)
class Country:
    """One country of the table. `name` is without article ("Philippines"), `noun` with it ("the Philippines").

    `life_expectancy` is in years, `unemployment_pct` in percent, `area_km2` in square kilometres, all as the table
    writes them; `gdp` is "$389.1 billion", at purchasing power parity, and `gdp_dollars` the same as a number.
    `independence` is a date as in the table: of independence from `independence_from`, or of `founding_event` where
    the country never depended on another.
    """

    name: str
    article: str
    also_called: str | None
    region: str
    capital: str | None
    area_km2: str | None
    population: int | None
    life_expectancy: str | None
    unemployment_pct: str | None
    gdp: str | None
    official_languages: tuple[str, ...]
    other_languages: tuple[str, ...]
    independence: str | None
    independence_from: str | None
    founding_event: str | None
    government_type: str
    highest_point: str | None
    highest_point_m: str | None
    borders: tuple[str, ...]
    internet_code: str | None
    adjective: str | None
    anthem: str | None
    anthem_meaning: str | None

    @property
    def noun(self) -> str:
        return f"{self.article} {self.name}" if self.article else self.name

    @property
    def gained_independence(self) -> bool:
        """Whether `independence` is a day of independence, not of a foundation."""
        return self.independence_from is not None or self.founding_event == DECLARATION

    @property
    def gdp_dollars(self) -> float | None:
        if self.gdp is None:
            return None
        amount, magnitude = self.gdp.removeprefix("$").split()
        return float(amount) * _MAGNITUDES[magnitude]

    @property
    def area(self) -> float | None:
        return None if self.area_km2 is None else float(self.area_km2)

    @property
    def density(self) -> float | None:
        """People per square kilometre."""
        return self.population / self.area if self.population and self.area else None

    @property
    def gdp_per_head(self) -> float | None:
        return self.gdp_dollars / self.population if self.gdp_dollars and self.population else None

    @property
    def year(self) -> int | None:
        """The year of independence or foundation."""
        found = _YEAR.search(self.independence or "")
        return int(found[0]) if found else None


@dataclass(frozen=True, slots=True)
class Office:
    """An office and who holds it. `country` is the country's `name`; `since` is None where the table has no date."""

    country: str
    title: str
    holder: str
    since: date | None

    @property
    def is_throne(self) -> bool:
        return self.title in MONARCHS


@dataclass(frozen=True, slots=True)
class World:
    """All facts of one year. Offices come in the order of their countries, both alphabetical."""

    countries: tuple[Country, ...]
    offices: tuple[Office, ...]
    common_names: tuple[tuple[str, str], ...]

    def offices_held_by(self, holder: str) -> tuple[Office, ...]:
        return tuple(office for office in self.offices if office.holder == holder)

    def common_name(self, holder: str) -> str:
        """The name under which a holder is better known; the table's own where it has no other."""
        return dict(self.common_names).get(holder, holder)


def load_world(year: int) -> World:
    """The world of 2016 (30 November) or 2018 (20 December). Raises SourceInvalid for any other year."""
    if year not in DEMO_YEARS.values():
        raise SourceInvalid(source=f"encyclopedia of {year}", reason="there is one of 2016 and one of 2018")
    return World(
        countries=tuple(_country(row, year) for row in _table("country_facts.csv")),
        offices=tuple(_office(row, year) for row in _table("world_leaders.csv")),
        common_names=tuple((row["holder"], row["common_name"]) for row in _table("people.csv")),
    )


def _table(name: str) -> Iterator[dict[str, str]]:
    text = files(__package__).joinpath("facts", name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def _country(row: dict[str, str], year: int) -> Country:
    values: dict[str, Any] = {}
    for field in fields(Country):
        column = _COLUMNS.get(field.name, field.name)
        cell = row[f"{column}_{year}" if column in _YEARLY else column]
        if get_origin(field.type) is tuple:
            values[field.name] = _listed(cell)
        elif field.name == "population":
            values[field.name] = int(cell) if cell else None
        else:
            values[field.name] = cell if field.type is str else cell or None
    return Country(**values)


def _office(row: dict[str, str], year: int) -> Office:
    since = row[f"since_{year}"]
    return Office(
        country=row["country"],
        title=row["office"],
        holder=row[f"holder_{year}"],
        since=date.fromisoformat(since) if since else None,
    )


def _listed(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(";") if part.strip())
