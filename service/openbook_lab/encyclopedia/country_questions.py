"""The facts of a country that are asked for, and the ways of asking for each."""

from collections.abc import Callable
from dataclasses import dataclass

from openbook_lab.encyclopedia import titles
from openbook_lab.encyclopedia.answers import counts, dates, measured, money, placed, unique
from openbook_lab.encyclopedia.grammar import listed, number
from openbook_lab.encyclopedia.world import Country


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of countries: what it is called, which field holds it, which article states it, how it is asked for."""

    kind: str
    field: str
    title: Callable[[Country], str]
    answers: Callable[[Country], tuple[str, ...]]
    ways: tuple[tuple[str, str], ...]


def _ways(**ways: str) -> tuple[tuple[str, str], ...]:
    return tuple(ways.items())


def _name(country: Country) -> str:
    return country.name


def _languages(country: Country) -> tuple[str, ...]:
    return unique(listed(country.official_languages), *country.official_languages)


FACTS = (
    Fact(
        "capital",
        "capital",
        _name,
        lambda country: unique(country.capital),
        _ways(
            plain="What is the capital of {noun}?",
            lower="what is the capital of {noun_lower}",
            keywords="capital of {noun_lower}",
            name="Name the capital of {noun}.",
            possessive="What is {whose} capital?",
            inverted="{Whose} capital is which city?",
            which="Which city is the capital of {noun}?",
            tell="Tell me the capital of {noun}.",
        ),
    ),
    Fact(
        "population",
        "population",
        titles.population_title,
        lambda country: counts(country.population),
        _ways(
            plain="What is the population of {noun}?",
            lower="what is the population of {noun_lower}",
            keywords="population {noun_lower}",
            how="How many people live in {noun}?",
            possessive="What is {whose} population?",
            inverted="{Whose} population is how large?",
            tell="Tell me how many inhabitants {noun} has.",
            name="Give the number of inhabitants of {noun}.",
        ),
    ),
    Fact(
        "gdp",
        "gdp",
        titles.economy_title,
        lambda country: money(country.gdp),
        _ways(
            plain="What is the GDP of {noun}?",
            lower="what is the gdp of {noun_lower}",
            keywords="gdp {noun_lower}",
            how="How large is the economy of {noun}?",
            possessive="What is {whose} gross domestic product?",
            inverted="{Whose} GDP is how much?",
            tell="Tell me the gross domestic product of {noun}.",
            name="Give the GDP of {noun} at purchasing power parity.",
        ),
    ),
    Fact(
        "life_expectancy",
        "life_expectancy",
        titles.population_title,
        lambda country: measured(country.life_expectancy, "years"),
        _ways(
            plain="What is the life expectancy in {noun}?",
            lower="what is the life expectancy in {noun_lower}",
            keywords="life expectancy {noun_lower}",
            how="How long do people in {noun} live on average?",
            possessive="What is {whose} life expectancy?",
            inverted="{Whose} life expectancy is how many years?",
            tell="Tell me the life expectancy at birth in {noun}.",
            name="Give the life expectancy of {noun}.",
        ),
    ),
    Fact(
        "unemployment",
        "unemployment_pct",
        titles.economy_title,
        lambda country: (
            unique(
                *(f"{country.unemployment_pct}{unit}" for unit in (" percent", "%", " per cent", "")),
            )
            if country.unemployment_pct
            else ()
        ),
        _ways(
            plain="What is the unemployment rate of {noun}?",
            lower="what is the unemployment rate in {noun_lower}",
            keywords="unemployment rate {noun_lower}",
            how="How high is unemployment in {noun}?",
            possessive="What is {whose} unemployment rate?",
            inverted="{Whose} unemployment rate is how high?",
            tell="Tell me the rate of unemployment in {noun}.",
            name="Give the unemployment rate of {noun}.",
        ),
    ),
    Fact(
        "area",
        "area_km2",
        titles.geography_title,
        lambda country: measured(
            number(country.area) if country.area is not None else None,
            "square kilometres",
            "sq km",
            "square kilometers",
        ),
        _ways(
            plain="What is the area of {noun}?",
            lower="what is the area of {noun_lower}",
            keywords="area of {noun_lower} square kilometres",
            how="How large is {noun}?",
            possessive="What is {whose} area?",
            inverted="{Whose} territory covers how many square kilometres?",
            tell="Tell me how big {noun} is.",
            name="Give the area of {noun} in square kilometres.",
        ),
    ),
    Fact(
        "highest_point",
        "highest_point",
        titles.geography_title,
        lambda country: (
            unique(country.highest_point)
            if country.highest_point and not country.highest_point.startswith("an unnamed")
            else ()
        ),
        _ways(
            plain="What is the highest point of {noun}?",
            lower="what is the highest point in {noun_lower}",
            keywords="highest point {noun_lower}",
            name="Name the highest point of {noun}.",
            possessive="What is {whose} highest point?",
            inverted="{Whose} highest point is what?",
            which="Which place is the highest in {noun}?",
            tell="Tell me the highest point in {noun}.",
        ),
    ),
    Fact(
        "elevation",
        "highest_point_m",
        titles.geography_title,
        lambda country: measured(
            number(float(country.highest_point_m)) if country.highest_point_m else None, "metres", "m", "meters"
        ),
        _ways(
            plain="How high is the highest point of {noun}?",
            lower="how high is the highest point of {noun_lower}",
            keywords="elevation highest point {noun_lower}",
            possessive="What is the elevation of {whose} highest point?",
            name="Give the height of the highest point of {noun}.",
            tell="Tell me how high {noun} rises.",
        ),
    ),
    Fact(
        "borders",
        "borders",
        titles.geography_title,
        lambda country: unique(listed(placed(country)), *placed(country), ", ".join(country.borders)),
        _ways(
            plain="Which country borders {noun}?",
            lower="what country borders {noun_lower}",
            keywords="{noun_lower} borders",
            name="Name a neighbour of {noun}.",
            possessive="What is one of {whose} neighbours?",
            which="With which country does {noun} share a land border?",
            tell="Tell me a country that {noun} borders.",
        ),
    ),
    Fact(
        "language",
        "official_languages",
        titles.population_title,
        _languages,
        _ways(
            plain="What is the official language of {noun}?",
            lower="what is the official language of {noun_lower}",
            keywords="official language {noun_lower}",
            name="Name an official language of {noun}.",
            possessive="What is {whose} official language?",
            inverted="{Whose} official language is what?",
            which="Which language is official in {noun}?",
            tell="Tell me the official language of {noun}.",
        ),
    ),
    Fact(
        "independence",
        "independence",
        titles.history_title,
        lambda country: dates(country.independence) if country.gained_independence else (),
        _ways(
            plain="When did {noun} become independent?",
            lower="when did {noun_lower} become independent",
            keywords="{noun_lower} independence date",
            since="Since when has {noun} been independent?",
            possessive="What is the date of {whose} independence?",
            name="Give the date of the independence of {noun}.",
            which="On which day did {noun} gain independence?",
            tell="Tell me when {noun} became independent.",
        ),
    ),
    Fact(
        "independence_from",
        "independence_from",
        titles.history_title,
        lambda country: unique(country.independence_from, (country.independence_from or "").removeprefix("the ")),
        _ways(
            plain="From whom did {noun} become independent?",
            lower="from what country did {noun_lower} become independent",
            keywords="{noun_lower} independence from",
            name="Name the power from which {noun} gained independence.",
            which="From which state did {noun} gain its independence?",
            tell="Tell me from whom {noun} became independent.",
        ),
    ),
    Fact(
        "government",
        "government_type",
        titles.government_title,
        lambda country: unique(country.government_type),
        _ways(
            plain="What type of government does {noun} have?",
            lower="what type of government does {noun_lower} have",
            keywords="government type {noun_lower}",
            how="How is {noun} governed?",
            possessive="What is {whose} form of government?",
            inverted="{Whose} form of government is what?",
            tell="Tell me what kind of state {noun} is.",
            name="Name the form of government of {noun}.",
        ),
    ),
    Fact(
        "internet_code",
        "internet_code",
        titles.symbols_title,
        lambda country: unique(country.internet_code, (country.internet_code or "").removeprefix(".")),
        _ways(
            plain="What is the internet country code of {noun}?",
            lower="what is the internet country code of {noun_lower}",
            keywords="internet code {noun_lower}",
            name="Give the internet country code of {noun}.",
            possessive="What is {whose} internet code?",
            inverted="{Whose} web addresses end in what?",
            which="Which internet code belongs to {noun}?",
            tell="Tell me the top-level domain of {noun}.",
        ),
    ),
    Fact(
        "nationality",
        "adjective",
        titles.symbols_title,
        lambda country: unique(country.adjective),
        _ways(
            plain="What is the adjective for {noun}?",
            lower="what do you call something from {noun_lower}",
            keywords="{noun_lower} adjective of nationality",
            name="Give the adjective of nationality of {noun}.",
            possessive="What is {whose} adjective of nationality?",
            how="How does one describe what comes from {noun}?",
            tell="Tell me the nationality of people from {noun}.",
        ),
    ),
    Fact(
        "anthem",
        "anthem",
        titles.symbols_title,
        lambda country: unique(country.anthem),
        _ways(
            plain="What is the national anthem of {noun}?",
            lower="what is the national anthem of {noun_lower}",
            keywords="national anthem {noun_lower}",
            name="Name the national anthem of {noun}.",
            possessive="What is {whose} national anthem called?",
            inverted="{Whose} anthem is what?",
            which="Which song is the national anthem of {noun}?",
            tell="Tell me the title of the national anthem of {noun}.",
        ),
    ),
)
