"""The article of a government: its form, its leading offices and who holds them, where else the form is found."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import an, counted, figure, listed, long_date
from openbook_lab.encyclopedia.titles import common_title, government_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country, Office


def government_text(country: Country, facts: Comparisons) -> str:
    wording = Wording(government_title(country))
    offices = facts.offices_of(country.name)
    return joined(
        _form(country, wording),
        *(_office(office, position, country, wording) for position, office in enumerate(offices)),
        wording.ordered(
            "body",
            [
                _seat(country, wording),
                _same_form(country, facts, wording),
                _since_when(country, wording),
                _seniority(offices, wording),
                _same_title(country, offices, facts, wording),
            ],
        ),
    )


def _form(country: Country, wording: Wording) -> str:
    noun, form, region = country.noun, country.government_type, country.region
    return wording.pick(
        "form",
        [
            f"{noun} is {an(form)}.",
            f"By its form of government {noun} is {an(form)}.",
            f"The form of government of {noun} is that of {an(form)}.",
            f"{noun}, in {region}, is governed as {an(form)}.",
            f"As a state {noun} is {an(form)}.",
            f"{noun}, a country of {region}, has the form of {an(form)}.",
            f"The state of {noun} is described as {an(form)}.",
            f"{noun} is classed among the states of {region} as {an(form)}.",
        ],
    )


def _office(office: Office, position: int, country: Country, wording: Wording) -> str:
    title, holder, noun = common_title(office), office.holder, country.noun
    slot = f"office/{position}"
    also = "also " if position else ""
    if office.since is None:
        return wording.pick(
            slot,
            [
                f"The {title} is {holder}.",
                f"It {also}has {an(title)}, {holder}.",
                f"{holder} is {title}.",
                f"The office of {title} is held by {holder}.",
                f"As {title} it has {holder}.",
                f"Its {title} is {holder}.",
            ],
        )
    day = long_date(office.since)
    if office.is_throne:
        return wording.pick(
            slot,
            [
                f"The {title} is {holder}, who has reigned since {day}.",
                f"{holder} has been its {title} since {day}.",
                f"Its {title}, {holder}, came to the throne on {day}.",
                f"Since {day} the {title} has been {holder}.",
            ],
        )
    return wording.pick(
        slot,
        [
            f"The {title} is {holder}, in office since {day}.",
            f"{holder} has been {title} since {day}.",
            f"Its {title}, {holder}, took office on {day}.",
            f"Since {day} the {title} has been {holder}.",
            f"The office of {title} is held by {holder}, who entered it on {day}.",
            f"As {title} it {also}has {holder}, who has served since {day}.",
            f"On {day} {holder} became {title} of {noun}.",
        ],
    )


def _seat(country: Country, wording: Wording) -> str | None:
    if country.capital is None:
        return None
    capital, noun = country.capital, country.noun
    return wording.pick(
        "seat",
        [
            f"The capital is {capital}.",
            f"Its capital is {capital}.",
            f"The capital of the state is {capital}.",
            f"{capital} is the capital of {noun}.",
            f"The state has its capital at {capital}.",
        ],
    )


def _same_form(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    form, region = country.government_type, country.region
    same = [other for other in facts.regions[region] if other.government_type == form and other.name != country.name]
    everywhere = sum(1 for other in facts.world.countries if other.government_type == form)
    if not same:
        if everywhere > 1:
            return f"No other country of {region} has the same form of government."
        return None
    if len(same) <= 5:
        named = listed([other.noun for other in same])
        return wording.pick(
            "same",
            [
                f"In {region} the same form of government is found in {named}.",
                f"It has this form in common with {named}.",
                f"{named} {'is' if len(same) == 1 else 'are'} governed in the same form.",
            ],
        )
    return wording.pick(
        "same",
        [
            f"In {region} {counted(len(same), 'other country', 'other countries')} have the same form.",
            f"It is one of {counted(everywhere, 'such state')} in this encyclopedia, "
            f"{figure(len(same) + 1)} of them in {region}.",
            f"Among the {len(facts.regions[region])} countries of {region} there are "
            f"{figure(len(same) + 1)} of this form.",
            f"Other examples in {region} are {same[0].noun}, {same[len(same) // 2].noun} and {same[-1].noun}.",
        ],
    )


def _since_when(country: Country, wording: Wording) -> str | None:
    if country.independence is None or country.independence_from is None:
        return None
    return wording.pick(
        "since",
        [
            f"The country has governed itself since {country.independence}.",
            f"Before {country.independence} it was not independent.",
            f"As an independent state it dates from {country.independence}.",
            f"Its independence goes back to {country.independence}.",
        ],
    )


def _seniority(offices: tuple[Office, ...], wording: Wording) -> str | None:
    """Which of two holders has been in office longer."""
    dated = [(office.since, office) for office in offices if office.since]
    if len(dated) != 2 or dated[0][0] == dated[1][0]:
        return None
    (_, senior), (_, junior) = sorted(dated, key=lambda pair: pair[0])
    first, second = common_title(senior), common_title(junior)
    return wording.pick(
        "seniority",
        [
            f"Of the two, the {first} has been in office longer.",
            f"The {second} is the one who came to office later.",
            f"The {first} was in office before the {second}.",
            f"When the {second} took office, the {first} was there already.",
        ],
    )


def _same_title(country: Country, offices: tuple[Office, ...], facts: Comparisons, wording: Wording) -> str | None:
    if not offices:
        return None
    title = common_title(offices[0])
    same = [
        other
        for other in facts.regions[country.region]
        if other.name != country.name and any(common_title(o) == title for o in facts.offices_of(other.name))
    ]
    if not same:
        return f"No other country of {country.region} is listed with {an(title)}."
    if len(same) == 1:
        return f"The other country of {country.region} with {an(title)} is {same[0].noun}."
    if len(same) < 6:
        return wording.pick(
            "title",
            [
                f"In {country.region}, {listed([other.noun for other in same])} have {an(title)} too.",
                f"The title of {title} is known in {listed([other.noun for other in same])} as well.",
            ],
        )
    return wording.pick(
        "title",
        [
            f"It is one of {counted(len(same) + 1, 'country', 'countries')} in {country.region} with {an(title)}.",
            f"Across {country.region} there are {counted(len(same), 'other country', 'other countries')} with "
            f"{an(title)}.",
            f"Leaders with the title of {title} are found in {counted(len(same) + 1, 'country', 'countries')} "
            f"of {country.region}.",
        ],
    )
