"""Articles about many countries at once: rankings, languages, forms of government, years of independence."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from openbook_lab.encyclopedia import comparisons
from openbook_lab.encyclopedia.comparisons import Comparisons, Measure
from openbook_lab.encyclopedia.grammar import counted, listed, long_date, number, place
from openbook_lab.encyclopedia.history import day_of, year_of
from openbook_lab.encyclopedia.ranking import ranking
from openbook_lab.encyclopedia.regions import Written, region_lists
from openbook_lab.encyclopedia.titles import common_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country, Office


def lists(facts: Comparisons) -> Iterator[Written]:
    """Titles and texts. The titles depend on names, regions, languages and dates, which are the same in both years."""
    for region, countries in sorted(facts.regions.items()):
        yield from region_lists(region, countries, facts)
    yield from _rankings(facts)
    yield from _languages(facts)
    yield from _forms(facts)
    yield from _decades(facts)
    yield from _origins(facts)
    yield from _thrones(facts)


_RANKINGS: tuple[tuple[str, Measure, str, Callable[[Country], str]], ...] = (
    (
        "Most populous countries of the world",
        comparisons.population,
        "The most populous country in the world is {noun}, with {amount}.",
        lambda country: f"{number(country.population or 0)} people",
    ),
    (
        "Largest economies of the world",
        comparisons.gdp,
        "At purchasing power parity, the largest economy in the world is that of {noun}, with {amount}.",
        lambda country: f"{country.gdp}",
    ),
    (
        "Largest countries of the world by area",
        comparisons.area,
        "The largest country in the world by area is {noun}, with {amount}.",
        lambda country: f"{number(country.area or 0)} square kilometres",
    ),
    (
        "Countries of the world by life expectancy",
        comparisons.life_expectancy,
        "Nowhere is life expectancy at birth higher than in {noun}, with {amount}.",
        lambda country: f"{country.life_expectancy} years",
    ),
    (
        "Highest points of the countries of the world",
        comparisons.elevation,
        "No country rises higher than {noun}, with {amount}.",
        lambda country: f"{country.highest_point} at {number(comparisons.elevation(country) or 0)} metres",
    ),
    (
        "Countries of the world by unemployment",
        comparisons.unemployment,
        "The highest rate of unemployment is recorded for {noun}, with {amount}.",
        lambda country: f"{country.unemployment_pct} percent",
    ),
)


def _rankings(facts: Comparisons, places: int = 40) -> Iterator[Written]:
    for title, measure, opening, value in _RANKINGS:
        rows = facts.greatest(measure)[:places]
        first = opening.format(noun=rows[0].noun, amount=value(rows[0]))
        yield title, joined(first, *ranking(title, rows, value))


def _languages(facts: Comparisons, at_least: int = 3) -> Iterator[Written]:
    speakers: dict[str, list[Country]] = defaultdict(list)
    for country in facts.world.countries:
        for language in country.official_languages:
            speakers[language].append(country)
    for language, countries in sorted(speakers.items()):
        if len(countries) < at_least:
            continue
        title = f"{language} as an official language"
        alone = [country.noun for country in countries if len(country.official_languages) == 1]
        shared = [country for country in countries if len(country.official_languages) > 1]
        beside = [
            f"{country.noun} (with {listed(other for other in country.official_languages if other != language)})"
            for country in shared
        ]
        yield (
            title,
            joined(
                f"{language} is an official language of {counted(len(countries), 'country', 'countries')}.",
                f"It is the only official language of {listed(alone)}." if alone else None,
                f"Beside others it is official in {listed(beside)}." if beside else None,
            ),
        )


def _forms(facts: Comparisons, at_least: int = 3) -> Iterator[Written]:
    states: dict[str, list[Country]] = defaultdict(list)
    for country in facts.world.countries:
        states[country.government_type].append(country)
    for form, countries in sorted(states.items()):
        if len(countries) < at_least:
            continue
        by_region: dict[str, list[str]] = defaultdict(list)
        for country in countries:
            by_region[country.region].append(country.noun)
        opening = f"{counted(len(countries), 'country', 'countries')} have a form of government that is called {form}."
        sentences = [
            f"In {region} {'it is' if len(nouns) == 1 else 'they are'} {listed(nouns)}."
            for region, nouns in sorted(by_region.items())
        ]
        yield f"States with the form of government {form}", joined(Wording(form).pick("opening", [opening]), *sentences)


def _decades(facts: Comparisons) -> Iterator[Written]:
    decades: dict[int, list[Country]] = defaultdict(list)
    for country in facts.world.countries:
        year = year_of(country)
        if country.gained_independence and year and year >= 1900:
            decades[year // 10 * 10].append(country)
    for decade, countries in sorted(decades.items()):
        if len(countries) < 3:
            continue
        title = f"Countries that became independent in the {decade}s"
        wording = Wording(title)
        opening = f"In the {decade}s {counted(len(countries), 'country', 'countries')} became independent."
        sentences = [_independence(country, wording) for country in sorted(countries, key=_by_day)]
        yield title, joined(opening, *sentences)


def _by_day(country: Country) -> tuple[int, int, int, str]:
    return *day_of(country), country.name


def _independence(country: Country, wording: Wording) -> str:
    noun, day, origin = country.noun, country.independence, country.independence_from
    if origin is None:
        return wording.pick(
            country.name,
            [f"{noun} declared its independence on {day}.", f"On {day} {noun} declared itself independent."],
        )
    return wording.pick(
        country.name,
        [
            f"{noun} gained its independence from {origin} on {day}.",
            f"On {day} {noun} became independent from {origin}.",
            f"{noun} has been independent from {origin} since {day}.",
            f"The independence of {noun} from {origin} dates from {day}.",
            f"{noun} obtained independence from {origin} on {day}.",
        ],
    )


def _origins(facts: Comparisons, at_least: int = 4) -> Iterator[Written]:
    parted: dict[str, list[Country]] = defaultdict(list)
    for country in facts.world.countries:
        if country.independence_from:
            parted[country.independence_from].append(country)
    for origin, countries in sorted(parted.items()):
        if len(countries) < at_least:
            continue
        title = f"Countries that became independent from {origin}"
        opening = f"{counted(len(countries), 'country', 'countries')} became independent from {origin}."
        dated = [f"{country.noun} ({country.independence})" for country in sorted(countries, key=_by_day)]
        groups = [dated[start : start + 6] for start in range(0, len(dated), 6)]
        starts = (
            "In the order of time these were" if len(groups) == 1 else "The earliest were",
            "Then came",
            "These were followed by",
            "Later there were",
            "Further on came",
        )
        sentences = [f"{starts[min(position, 4)]} {listed(group)}." for position, group in enumerate(groups)]
        yield title, joined(Wording(title).pick("opening", [opening]), *sentences)


def _thrones(facts: Comparisons) -> Iterator[Written]:
    title = "Monarchs of the world"
    wording = Wording(title)
    sentences = [
        wording.pick(
            f"{office.country}/{office.title}",
            [
                f"The {common_title(office)} of {place(office.country)} is {office.holder}{_reigning(office)}.",
                f"{office.holder} is {common_title(office)} of {place(office.country)}{_reigning(office)}.",
                f"In {place(office.country)} {office.holder} reigns as {common_title(office)}{_reigning(office)}.",
            ],
        )
        for office in facts.world.offices
        if office.is_throne and office.title != "Pope"
    ]
    yield title, joined("These are the monarchs of the world and the beginnings of their reigns.", *sentences)


def _reigning(office: Office) -> str:
    return f", since {long_date(office.since)}" if office.since else ""
