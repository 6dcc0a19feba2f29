"""Articles about many countries at once: regions, rankings, languages, forms of government, years of independence."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, repeat

from openbook_lab.encyclopedia.comparisons import Comparisons, Measure
from openbook_lab.encyclopedia.fields import country_fields, fields, leaders, office_fields
from openbook_lab.encyclopedia.grammar import Count, Names, listed, number, ordinal
from openbook_lab.encyclopedia.wording import Fields, Phrases, heading, kinds
from openbook_lab.encyclopedia.world import Country

Written = tuple[str, str]  # title, text
Rows = Iterable[tuple[str, Fields]]  # what a row's wording is drawn by, and its fields

_WORLD_RANKINGS: dict[str, Measure] = {
    "most-populous": "population",
    "largest-economies": "gdp_dollars",
    "largest-countries": "area",
    "longest-lives": "life_expectancy",
    "highest-points": "highest_point_m",
    "highest-unemployment": "unemployment_pct",
}


def lists(facts: Comparisons) -> Iterator[Written]:
    """Titles and texts. The titles depend on names, regions, languages and dates, which are the same in both years."""
    for region, countries in sorted(facts.regions.items()):
        values = fields(region=region, countries=Count(len(countries)))
        yield _listed("capitals", values, ((land.name, country_fields(land)) for land in countries if land.capital))
        yield _listed("leaders", values, _leaders(countries, facts))
        yield _ranking("region-populations", facts.greatest("population", region))
        yield _ranking("region-economies", facts.greatest("gdp_dollars", region))
    for kind, measure in _WORLD_RANKINGS.items():
        yield _ranking(kind, facts.greatest(measure)[:40])
    yield from _languages(facts)
    yield from _forms(facts)
    yield from _decades(facts)
    yield from _origins(facts)
    thrones = [office for office in facts.world.offices if office.is_throne and office.title != "Pope"]
    yield _listed("thrones", {}, ((f"{office.country}/{office.title}", office_fields(office)) for office in thrones))


def _listed(kind: str, values: Fields, rows: Rows) -> Written:
    wording = Phrases(kind, heading(kind, values))
    return wording.title, wording.text(values, [wording.say("rows", row, draw=draw) for draw, row in rows])


def _leaders(countries: list[Country], facts: Comparisons) -> Rows:
    for country in countries:
        if offices := facts.offices[country.name]:
            yield country.name, country_fields(country) | leaders("leaders", offices)


def _ranking(kind: str, countries: list[Country]) -> Written:
    """The first country in the opening, the others in a row each."""
    total = number(sum(country.population or 0 for country in countries))
    values = country_fields(countries[0]) | fields(countries=Count(len(countries)), total=total)
    wording = Phrases("ranking", heading(kind, values))
    rows = []
    for place, country in enumerate(countries[1:], start=2):
        row = country_fields(country)
        last = place == len(countries)
        row |= fields(
            amount=kinds()[kind]["amount"].format_map(row),
            before=countries[place - 2].noun,
            place=place,
            th=ordinal(place),
            last=last,
        )
        rows.append(wording.say("rows", row, draw="last" if last else country.name))
    return wording.title, Phrases(kind, wording.title).text(values, rows)


def _languages(facts: Comparisons) -> Iterator[Written]:
    pairs = ((language, country) for country in facts.world.countries for language in country.official_languages)
    for language, countries in _grouped(pairs, at_least=3):
        beside = [
            f"{country.noun} (with {listed(other for other in country.official_languages if other != language)})"
            for country in countries
            if len(country.official_languages) > 1
        ]
        values = fields(
            language=language,
            countries=Count(len(countries)),
            alone=Names(country.noun for country in countries if len(country.official_languages) == 1),
            beside=Names(beside),
        )
        yield _listed("languages", values, ())


def _forms(facts: Comparisons) -> Iterator[Written]:
    pairs = ((country.government_type, country) for country in facts.world.countries)
    for form, countries in _grouped(pairs, at_least=3):
        regions = _grouped(((country.region, country) for country in countries), at_least=1)
        rows = (
            (region, fields(region=region, same=Names(country.noun for country in there))) for region, there in regions
        )
        yield _listed("forms", fields(form=form, countries=Count(len(countries))), rows)


def _decades(facts: Comparisons) -> Iterator[Written]:
    pairs = (
        (str(country.year // 10 * 10), country)
        for country in facts.world.countries
        if country.gained_independence and country.year and country.year >= 1900
    )
    for decade, countries in _grouped(pairs, at_least=3):
        rows = ((country.name, country_fields(country)) for country in sorted(countries, key=_day))
        yield _listed("decades", fields(decade=decade, countries=Count(len(countries))), rows)


def _origins(facts: Comparisons) -> Iterator[Written]:
    pairs = ((country.independence_from, country) for country in facts.world.countries if country.independence_from)
    for origin, countries in _grouped(pairs, at_least=4):
        dated = [f"{country.noun} ({country.independence})" for country in sorted(countries, key=_day)]
        groups = [dated[start : start + 6] for start in range(0, len(dated), 6)]
        values = fields(origin=origin, countries=Count(len(countries)))
        wording = Phrases("origins", heading("origins", values))
        starts = kinds()["origins"]["starts"] if len(groups) > 1 else [kinds()["origins"]["only_start"]]
        begun = zip(chain(starts, repeat(starts[-1])), groups, strict=False)
        yield wording.title, wording.text(values, [f"{start} {listed(group)}." for start, group in begun])


def _grouped(pairs: Iterable[tuple[str, Country]], *, at_least: int) -> list[tuple[str, list[Country]]]:
    """The countries of each key, sorted by key; only groups of `at_least` countries."""
    groups: dict[str, list[Country]] = defaultdict(list)
    for key, country in pairs:
        groups[key].append(country)
    return [(key, countries) for key, countries in sorted(groups.items()) if len(countries) >= at_least]


def _day(country: Country) -> tuple[int, int, int, str]:
    """Year, month and day of independence or foundation, to sort by; zero where it is unknown."""
    try:
        day = datetime.strptime(country.independence or "", "%d %B %Y")
    except ValueError:
        return country.year or 0, 0, 0, country.name
    return day.year, day.month, day.day, country.name
