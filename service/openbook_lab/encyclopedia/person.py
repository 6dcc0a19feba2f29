"""The article of a person: the offices held, and what the tables say of them. No biography: the tables have none."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import an, counted, listed, long_date, place
from openbook_lab.encyclopedia.titles import common_title, office_title, person_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country, Office


def person_text(holder: str, facts: Comparisons) -> str:
    offices = facts.offices_held_by(holder)
    wording = Wording(person_title(facts.world, holder))
    if len({office.title for office in offices}) == 1 and len(offices) > 3:
        return _many_thrones(holder, offices, wording)
    office = offices[0]
    country = facts.by_name[office.country]
    return joined(
        _office(holder, office, facts, wording),
        _further(holder, offices[1:], wording),
        wording.ordered(
            "body",
            [
                _country(holder, country, wording),
                _colleagues(holder, offices, facts, wording),
                _neighbours(office, country, facts, wording),
            ],
        ),
    )


def _named(holder: str, facts: Comparisons, wording: Wording) -> str:
    common = facts.world.common_name(holder)
    if common == holder:
        return holder
    known = wording.phrase("known", ["better known as", "usually called", "known to most as", "commonly called"])
    return f"{holder}, {known} {common},"


def _office(holder: str, office: Office, facts: Comparisons, wording: Wording) -> str:
    name, title = _named(holder, facts, wording), office_title(office)
    plain = name if name.endswith(",") else f"{name},"
    if office.since is None:
        return wording.pick(
            "office",
            [
                f"{name} is the {title}.",
                f"{name} holds the office of {title}.",
                f"{name} serves as {title}.",
                f"{name} is a political leader and the present {title}."
                if not office.is_throne
                else f"{name} is the reigning {title}.",
                f"The office of {title} is in the hands of {name.rstrip(',')}.",
                f"{name} is the person who at present holds the office of {title}.",
            ],
        )
    day = long_date(office.since)
    if office.is_throne:
        return wording.pick(
            "office",
            [
                f"{name} is the {title} and came to that dignity on {day}.",
                f"{name} has been {title} since {day}.",
                f"{plain} {title}, has reigned since {day}.",
                f"{name} became {title} on {day}.",
            ],
        )
    return wording.pick(
        "office",
        [
            f"{name} has been the {title} since {day}.",
            f"{name} is the {title}, an office taken up on {day}.",
            f"{plain} the {title}, has been in office since {day}.",
            f"{name} became {title} on {day} and is still in office.",
            f"{name} serves as {title}, having entered office on {day}.",
            f"{name} took office as {title} on {day}.",
            f"{plain} in office since {day}, is the {title}.",
            f"{name} is a political leader who has served as {title} since {day}.",
        ],
    )


def _further(holder: str, others: tuple[Office, ...], wording: Wording) -> str | None:
    if not others:
        return None
    named = [
        f"{office_title(office)}" + (f", since {long_date(office.since)}" if office.since else "") for office in others
    ]
    return wording.pick(
        "further",
        [f"{holder} is also {listed(named)}.", f"To {holder} belongs, besides, the office of {listed(named)}."],
    )


def _country(holder: str, country: Country, wording: Wording) -> str:
    kind = an(country.government_type)
    seat = f"with its capital at {country.capital}" if country.capital else f"in {country.region}"
    people = f"{country.population:,} people" if country.population else "its people"
    return wording.pick(
        "country",
        [
            f"{country.noun} is {kind} {seat}.",
            f"The country that {holder} serves, {country.noun}, is {kind} and has {people}.",
            f"{country.noun}, {seat}, is home to {people}.",
            f"With {people}, {country.noun} is {kind} in {country.region}.",
            f"{country.noun} lies in {country.region} and has {people}.",
            f"{country.noun}, {kind} in {country.region}, is a country of {people}.",
        ],
    )


def _colleagues(holder: str, offices: tuple[Office, ...], facts: Comparisons, wording: Wording) -> str | None:
    country = offices[0].country
    others = [office for office in facts.offices_of(country) if office.holder != holder]
    if not others:
        return None
    named = listed([f"{office.holder} as {common_title(office)}" for office in others])
    plainly = listed([f"the {common_title(office)} is {office.holder}" for office in others])
    return wording.pick(
        "colleagues",
        [
            f"In {place(country)} {plainly}.",
            f"{holder} shares the leadership of {place(country)} with {named}.",
            f"Others at the head of {place(country)}: {plainly}."
            if len(others) > 1
            else f"In {place(country)}, {plainly}.",
            f"At the same time {place(country)} has {named}.",
            f"Beside {holder} in {place(country)}, {plainly}.",
        ],
    )


def _neighbours(office: Office, country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """What the country's neighbourhood is; no neighbour's leader, who has an article too."""
    names = [place(name) for name in country.borders]
    if not names:
        return wording.pick(
            "neighbours",
            [
                f"{country.noun} is recorded without a land border.",
                f"No land border with another country is recorded for {country.noun}.",
            ],
        )
    several = f"{counted(len(names), 'land neighbour')}, {listed(names)}"
    return wording.pick(
        "neighbours",
        [
            f"{country.noun} borders {listed(names)}.",
            f"{country.noun} has {several}."
            if len(names) > 1
            else f"The one land neighbour of {country.noun} is {names[0]}.",
            f"Across the borders of {country.noun} lie {listed(names)}."
            if len(names) > 1
            else f"Across the border of {country.noun} lies {names[0]}.",
            f"{listed(names)} {'share' if len(names) > 1 else 'shares'} a border with {country.noun}.",
        ],
    )


def _many_thrones(holder: str, offices: tuple[Office, ...], wording: Wording) -> str:
    title = common_title(offices[0])
    realms = [place(office.country) for office in offices]
    first = min((office.since for office in offices if office.since), default=None)
    since = f" since {long_date(first)}" if first else ""
    return joined(
        f"{holder} has been {title} of {counted(len(realms), 'country', 'countries')} of this encyclopedia{since}.",
        wording.pick(
            "realms",
            [f"These are {listed(realms)}.", f"The thrones are those of {listed(realms)}."],
        ),
        f"In each of them the {title} is one and the same person.",
    )
