"""The article of a country's independence, or of its foundation where it was never dependent."""

import re
from datetime import datetime

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import an, counted, figure, listed, on_date
from openbook_lab.encyclopedia.titles import history_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country

_YEAR = re.compile(r"\d{3,4}$")


def year_of(country: Country) -> int | None:
    """The year of independence or foundation."""
    found = _YEAR.search(country.independence or "")
    return int(found[0]) if found else None


def day_of(country: Country) -> tuple[int, int, int]:
    """Year, month and day of independence or foundation, to sort by; what is unknown is zero."""
    try:
        day = datetime.strptime(country.independence or "", "%d %B %Y")
    except ValueError:
        return year_of(country) or 0, 0, 0
    return day.year, day.month, day.day


def history_text(country: Country, facts: Comparisons) -> str | None:
    if country.independence is None:
        return None
    wording = Wording(history_title(country))
    return joined(
        _date(country, wording),
        _today(country, wording),
        wording.ordered(
            "body",
            [
                _same_year(country, facts, wording),
                _same_origin(country, facts, wording),
                _region_order(country, facts, wording),
                _neighbours(country, facts, wording),
            ],
        ),
    )


def _date(country: Country, wording: Wording) -> str:
    noun, day, when = country.noun, country.independence or "", on_date(country.independence or "")
    if country.independence_from:
        origin = country.independence_from
        wordings = [
            f"{noun} became independent from {origin} {when}.",
            f"{when} {noun} gained its independence from {origin}.",
            f"The independence of {noun} from {origin} dates from {day}.",
            f"It was {when} that {noun} became independent from {origin}.",
            f"{noun} obtained independence from {origin} {when}.",
            f"{noun} counts {day} as the day of its independence from {origin}.",
            f"{noun} has been independent from {origin} since {day}.",
        ]
        if not origin.startswith(("a ", "the control")):
            wordings.append(f"{noun} has been independent since {day}; before that it was bound to {origin}.")
        return wording.pick("date", wordings)
    if country.gained_independence:
        return wording.pick(
            "date",
            [
                f"{noun} declared its independence {when}.",
                f"{when} {noun} declared itself independent.",
                f"The independence of {noun} was declared {when}.",
                f"{noun} counts its independence from the declaration of {day}.",
            ],
        )
    if country.founding_event:
        event = country.founding_event
        return wording.pick(
            "date",
            [
                f"The beginning of {noun} as a state is set at {day}, the date of {event}.",
                f"For {noun} the date that stands in place of an independence day is {day}, that of {event}.",
                f"{noun} traces its statehood to {event} {when}.",
                f"What counts as the origin of {noun} as a state is {event}, {when}.",
                f"The origin of {noun} as a state lies in {event}, {when}.",
            ],
        )
    return wording.pick(
        "date",
        [
            f"The foundation of {noun} as a state is dated {day}.",
            f"{noun} came into being as a state {when}.",
            f"As a state {noun} dates from {day}.",
        ],
    )


def _today(country: Country, wording: Wording) -> str:
    noun, form = country.noun, an(country.government_type)
    seat = f" with {country.capital} as its capital" if country.capital else ""
    return wording.pick(
        "today",
        [
            f"It is {form}{seat}.",
            f"Today the country is {form}{seat}.",
            f"The state that came of it, in {country.region}, is {form}{seat}.",
            f"{noun} is {form} of {country.region}{seat}." if not seat else f"{noun} is {form}{seat}.",
            f"Now it is {form}{seat}.",
        ],
    )


def _same_year(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    year = year_of(country)
    same = [
        other
        for other in facts.world.countries
        if country.gained_independence and other.gained_independence and year_of(other) == year and other is not country
    ]
    if not same:
        return None
    named = [other.noun for other in same[:6]]
    more = f" and {counted(len(same) - 6, 'other')}" if len(same) > 6 else ""
    names = f"{', '.join(named)}{more}" if more else listed(named)
    return wording.pick(
        "year",
        [
            f"In the same year, {year}, independence came to {names} too.",
            f"The year {year} also brought independence to {names}.",
            f"Other countries that became independent in {year} are {names}."
            if len(same) > 1
            else f"Another country that became independent in {year} is {names}.",
            f"It shares {year} as the year of its independence with {names}.",
        ],
    )


def _same_origin(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    origin = country.independence_from
    same = [other for other in facts.world.countries if origin and other.independence_from == origin]
    if origin is None or len(same) < 3:
        return None
    near = [other.noun for other in same if other.region == country.region and other is not country][:4]
    sentences = [
        f"All in all {counted(len(same), 'country', 'countries')} became independent from {origin}.",
        f"{country.noun} is one of {figure(len(same))} countries that gained independence from {origin}.",
    ]
    if near:
        sentences += [
            f"Others in {country.region} that became independent from {origin} are {listed(near)}."
            if len(near) > 1
            else f"In {country.region} {near[0]} became independent from {origin} as well.",
            f"In {country.region}, {listed(near)} also gained independence from {origin}.",
        ]
    return wording.pick("origin", sentences)


def _region_order(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """How many states of the region have been independent longer."""
    dated = [
        (year, other)
        for other in facts.regions[country.region]
        if other.gained_independence and (year := year_of(other)) is not None
    ]
    year = year_of(country)
    if not country.gained_independence or year is None or len(dated) < 5:
        return None
    earlier = sum(1 for other_year, _ in dated if other_year < year)
    later = sum(1 for other_year, _ in dated if other_year > year)
    region = country.region
    if earlier == 0:
        return f"Among the countries of {region} that gained independence, none did so in an earlier year."
    if later == 0:
        return f"Among the countries of {region} that gained independence, none did so in a later year."
    return wording.pick(
        "order",
        [
            f"In {region}, {counted(earlier, 'country', 'countries')} gained independence in earlier years and "
            f"{counted(later, 'country', 'countries')} in later ones.",
            f"{counted(later, 'country', 'countries')} of {region} followed in later years.",
            f"{counted(earlier, 'country', 'countries')} of {region} had become independent in earlier years.",
        ],
    )


def _neighbours(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    dated = [
        (other.noun, year)
        for other in facts.neighbours(country)
        if other.gained_independence and (year := year_of(other))
    ][:4]
    if not dated:
        return None
    (first, first_year), *rest = dated
    later = [f"{noun} in {year}" for noun, year in rest]
    bracketed = listed([f"{noun} ({year})" for noun, year in dated])
    return wording.pick(
        "neighbours",
        [
            f"Of its neighbours, {listed([f'{first} became independent in {first_year}', *later])}.",
            f"Independence came to {listed([f'neighbouring {first} in {first_year}', *later])}.",
            f"Around it independence has been gained by {bracketed}.",
            f"Its neighbours can look back to other dates, among them {bracketed}."
            if len(dated) > 1
            else f"Its neighbour {first} has been independent since {first_year}.",
        ],
    )
