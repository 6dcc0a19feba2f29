"""The articles of a region: its capitals, leaders, populations and economies."""

from collections.abc import Iterator

from openbook_lab.encyclopedia import comparisons
from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import counted, listed, number
from openbook_lab.encyclopedia.ranking import ranking
from openbook_lab.encyclopedia.titles import common_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country, Office

Written = tuple[str, str]  # title, text


def region_lists(region: str, countries: list[Country], facts: Comparisons) -> Iterator[Written]:
    """Titles and texts of one region's articles; `countries` in the order in which they are to be listed."""
    yield _capitals(region, countries)
    yield _leaders(region, countries, facts)
    yield _populations(region, facts)
    yield _economies(region, facts)


def _capitals(region: str, countries: list[Country]) -> Written:
    title = f"Capitals of {region}"
    wording = Wording(title)
    sentences = [
        wording.pick(
            "opening",
            [
                f"{region} has {counted(len(countries), 'country', 'countries')} in this encyclopedia.",
                f"This is a survey of the capitals of {counted(len(countries), 'country', 'countries')} in {region}.",
            ],
        )
    ]
    for country in countries:
        if country.capital is None:
            continue
        noun, capital = country.noun, country.capital
        sentences.append(
            wording.pick(
                country.name,
                [
                    f"The capital of {noun} is {capital}.",
                    f"{noun} has {capital} as its capital.",
                    f"{capital} is the capital of {noun}.",
                    f"In {noun} the capital is {capital}.",
                    f"{noun}, a country of {region}, has its capital at {capital}.",
                ],
            )
        )
    return title, joined(*sentences)


def _leaders(region: str, countries: list[Country], facts: Comparisons) -> Written:
    title = f"Leaders of {region}"
    wording = Wording(title)
    sentences = [
        wording.pick(
            "opening",
            [
                f"The following persons lead the countries of {region}.",
                f"Those who lead the countries of {region} are named here in the order of the countries.",
            ],
        )
    ]
    for country in countries:
        offices = facts.offices_of(country.name)
        if offices:
            sentences.append(_country_leaders(country, offices, wording))
    return title, joined(*sentences)


def _country_leaders(country: Country, offices: tuple[Office, ...], wording: Wording) -> str:
    noun = country.noun
    plainly = listed([f"the {common_title(office)} is {office.holder}" for office in offices])
    acting = listed([f"{office.holder} as {common_title(office)}" for office in offices])
    bracketed = listed([f"{office.holder} ({common_title(office)})" for office in offices])
    return wording.pick(
        country.name,
        [
            f"In {noun} {plainly}.",
            f"{noun} has {acting}.",
            f"{noun} is led by {bracketed}.",
            f"For {noun}, {plainly}.",
            f"At the head of {noun} {'is' if len(offices) == 1 else 'are'} {bracketed}.",
            f"As for {noun}, {plainly}.",
        ],
    )


def _populations(region: str, facts: Comparisons) -> Written:
    title = f"Populations of {region}"
    rows = facts.greatest(comparisons.population, region)
    total = sum(country.population or 0 for country in rows)
    opening = (
        f"The {counted(len(rows), 'country', 'countries')} of {region} have {number(total)} inhabitants together. "
        f"The most populous is {rows[0].noun}, with {number(rows[0].population or 0)}."
    )
    return title, joined(opening, *ranking(title, rows, lambda country: f"{number(country.population or 0)} people"))


def _economies(region: str, facts: Comparisons) -> Written:
    title = f"Economies of {region}"
    rows = facts.greatest(comparisons.gdp, region)
    opening = (
        f"Of the economies of {region}, measured at purchasing power parity, the largest is that of {rows[0].noun}, "
        f"with a gross domestic product of {rows[0].gdp}."
    )
    return title, joined(opening, *ranking(title, rows, lambda country: f"{country.gdp}"))
