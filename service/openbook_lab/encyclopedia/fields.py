"""The fields that every article may use: the facts of a country, of an office, of several offices."""

from collections.abc import Iterable

from openbook_lab.encyclopedia.grammar import Names, Text, an, long_date, number, on_date, place, possessive
from openbook_lab.encyclopedia.titles import common_title, office_title
from openbook_lab.encyclopedia.wording import Fields, kinds
from openbook_lab.encyclopedia.world import Country, Office


def fields(**values: object) -> Fields:
    """A text, or the lack of one, becomes `Text`, which a template can test and surround."""
    return {
        name: Text(value or "") if value is None or isinstance(value, str) else value for name, value in values.items()
    }


def country_fields(country: Country) -> Fields:
    origin, population = country.independence_from, country.population
    return fields(
        name=country.name,
        noun=country.noun,
        whose=possessive(country.noun),
        region=country.region,
        capital=country.capital,
        also_called=country.also_called,
        adjective=country.adjective,
        form=country.government_type,
        kind=an(country.government_type),
        people=number(population) if population else None,
        inhabitants=f"{number(population)} people" if population else "its people",
        years=country.life_expectancy,
        gdp=country.gdp,
        unemployment=country.unemployment_pct,
        official=Names(country.official_languages),
        others=Names(country.other_languages),
        area=number(country.area) if country.area else None,
        tiny=country.area is not None and country.area < 1,
        peak=country.highest_point,
        metres=number(float(country.highest_point_m)) if country.highest_point_m else None,
        borders=Names(place(name) for name in country.borders),
        independence=country.independence,
        when=on_date(country.independence) if country.independence else None,
        origin=origin,
        # independence from a state, not from a form of rule
        parted=origin is not None and not origin.startswith(("a ", "the control")),
        gained_independence=country.gained_independence,
        event=country.founding_event,
        internet_code=country.internet_code,
        anthem=country.anthem,
        meaning=country.anthem_meaning,
    )


def office_fields(office: Office) -> Fields:
    return fields(
        title=common_title(office),
        a_title=an(common_title(office)),
        full_title=office_title(office),
        noun=place(office.country),
        holder=office.holder,
        day=long_date(office.since) if office.since else None,
        throne=office.is_throne,
        been="on the throne" if office.is_throne else "in office",
        pope=office.title == "Pope",
        president=office.title == "President",
    )


def leaders(of: str, offices: Iterable[Office]) -> Fields:
    """The offices in every form of `[one-leader]`: `leaders_are`, `leaders_acting`, ... where `of` is "leaders"."""
    each = [office_fields(office) for office in offices]
    forms: dict[str, str] = kinds()["one-leader"]
    return {f"{of}_{form}": Names(text.format_map(values) for values in each) for form, text in forms.items()}
