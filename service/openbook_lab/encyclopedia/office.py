"""The article of an office: who holds it, since when, in what state, and who governs beside."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import an, counted, figure, listed, long_date, place, possessive
from openbook_lab.encyclopedia.titles import common_title, office_title, role
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country, Office


def office_text(office: Office, facts: Comparisons) -> str:
    """The holder is named in the first sentence, with the office's and the country's full name."""
    country = facts.by_name[office.country]
    wording = Wording(office_title(office))
    return joined(
        _holder(office, country, wording),
        _holder_again(office, country, wording),
        wording.ordered(
            "body",
            [_state(office, country, wording), _beside(office, facts, wording), _elsewhere(office, facts, wording)],
        ),
        _service(office, facts, wording),
        _standing(office, country, facts, wording),
    )


def _holder(office: Office, country: Country, wording: Wording) -> str:
    title, holder = office_title(office), office.holder
    if office.is_throne:
        return _monarch(office, country, wording)
    if office.since is None:
        return wording.pick(
            "holder",
            [
                f"The {title} is {holder}.",
                f"{holder} is the {title}.",
                f"The office of {title} is held by {holder}.",
                f"The current {title} is {holder}.",
                f"{holder} holds the office of {title}.",
                f"{holder} serves as {title}.",
                f"The post of {title} is occupied by {holder}.",
                f"At present {holder} is the {title}.",
            ],
        )
    day = long_date(office.since)
    return wording.pick(
        "holder",
        [
            f"The {title} is {holder}, who has held the office since {day}.",
            f"{holder} has been the {title} since {day}.",
            f"Since {day} the office of {title} has been held by {holder}.",
            f"The current {title}, {holder}, took office on {day}.",
            f"{holder} holds the office of {title}, having taken it up on {day}.",
            f"{holder}, who took office on {day}, serves as {title}.",
            f"The post of {title} has been occupied since {day} by {holder}.",
            f"In office since {day}, {holder} is the {title}.",
        ],
    )


def _monarch(office: Office, country: Country, wording: Wording) -> str:
    title, holder = office_title(office), office.holder
    if office.since is None:
        return wording.pick("holder", [f"The {title} is {holder}.", f"{holder} reigns as {title}."])
    day = long_date(office.since)
    if office.title == "Pope":
        return f"The Pope is {holder}, who has led the Holy See, which is also known as Vatican City, since {day}."
    return wording.pick(
        "holder",
        [
            f"The {title} is {holder}, whose reign began on {day}.",
            f"{holder} has reigned as {title} since {day}.",
            f"Since {day} the {title} has been {holder}.",
            f"The reigning {title}, {holder}, came to the throne on {day}.",
            f"{holder} became the {title} on {day} and reigns to this day.",
            f"On the throne since {day}, {holder} is the {title}.",
        ],
    )


def _holder_again(office: Office, country: Country, wording: Wording) -> str:
    """What state the office belongs to."""
    holder, title, noun = office.holder, common_title(office), country.noun
    form, region, kind = an(country.government_type), country.region, _kind(country)
    if office.title == "Pope":
        return f"{holder} is thus at the head of {kind}."
    wordings = [
        f"{noun} is {kind}.",
        f"{noun}, {form}, lies in {region}.",
        f"{noun} is {kind}, and the {title} stands among its leaders.",
        f"As {title}, {holder} has a part in leading {kind}.",
        f"The {title} takes a leading place in {noun}, {form} of {region}.",
        f"{noun} belongs to the countries of {region} and is {form}.",
    ]
    if country.adjective:
        wordings.append(f"The {country.adjective} state is {kind}.")
    if not office.is_throne:
        wordings.append(f"{possessive(noun)} {title} is one of the leaders of {kind}.")
    return wording.pick("again", wordings)


def _kind(country: Country) -> str:
    return f"{an(country.government_type)} in {country.region}"


def _in_office(office: Office) -> str:
    """ ", in office since 28 July 2016", or nothing where the date is unknown."""
    if office.since is None:
        return ""
    return f", {'on the throne' if office.is_throne else 'in office'} since {long_date(office.since)}"


def _state(office: Office, country: Country, wording: Wording) -> str | None:
    if country.capital is None:
        return None
    people = f"{country.population:,} people" if country.population else "its people"
    noun, capital, title = country.noun, country.capital, common_title(office)
    return wording.pick(
        "state",
        [
            f"The capital of {noun}, a country of {people}, is {capital}.",
            f"{noun}, a country of {people}, has its capital at {capital}.",
            f"{capital} is the capital of the country, in which {people} live.",
            f"The state has {people} and its capital is {capital}.",
            f"With {capital} as its capital, {noun} is home to {people}.",
            f"The country over which the {title} presides has {people}; its capital is {capital}."
            if office.title == "President"
            else f"The country has {people}; its capital is {capital}.",
            f"{noun} has {capital} as its capital and {people} in all.",
        ],
    )


def _beside(office: Office, facts: Comparisons, wording: Wording) -> str | None:
    others = [other for other in facts.offices_of(office.country) if other.holder != office.holder]
    if not others:
        return None
    plainly = listed([f"the {common_title(other)}, {other.holder}" for other in others])
    named = listed([f"{other.holder} as {common_title(other)}" for other in others])
    are = listed([f"the {common_title(other)} is {other.holder}" for other in others])
    held = listed([f"that of {common_title(other)}, is held by {other.holder}" for other in others])
    dated = _in_office(others[0]) if len(others) == 1 else ""
    noun = place(office.country)
    return wording.pick(
        "beside",
        [
            f"Beside the {common_title(office)} stands {plainly}{dated}.",
            f"The country also has {named}{dated}.",
            f"At the top of the state there is also {plainly}{dated}.",
            f"The {common_title(office)} shares the leadership of the country with {plainly}{dated}.",
            f"Another leading office, {held}{dated}.",
            f"Another leader of {noun} is {plainly}{dated}.",
            f"In the same country {are}{dated}.",
            f"At the same time {are}{dated}.",
        ],
    )


def _elsewhere(office: Office, facts: Comparisons, wording: Wording) -> str | None:
    """The other offices of the same holder."""
    others = [other for other in facts.offices_held_by(office.holder) if other is not office]
    if not others:
        return None
    if len(others) > 3:
        others_listed = f"{counted(len(others), 'other country', 'other countries')} of this encyclopedia"
        return wording.pick(
            "elsewhere",
            [
                f"{office.holder} wears the crowns of {others_listed} too.",
                f"The same person is at the head of {others_listed} as well.",
                f"In {others_listed} {office.holder} reigns likewise.",
            ],
        )
    return f"{office.holder} is also {listed([role(other) for other in others])}."


def _service(office: Office, facts: Comparisons, wording: Wording) -> str | None:
    """How the time in office compares with that of the region's other holders of the same title."""
    region = facts.by_name[office.country].region
    peers = [
        other
        for other in facts.world.offices
        if other.title == office.title and other.since and facts.by_name[other.country].region == region
    ]
    if office.since is None or len(peers) < 4 or office.title == "Queen":
        return None
    longer = sum(1 for other in peers if other.since and other.since < office.since)
    title, holder = common_title(office), office.holder
    been = "on the throne" if office.is_throne else "in office"
    if longer == 0:
        return wording.pick(
            "service",
            [
                f"No other {title} in {region} has been {been} longer.",
                f"Of the {title}s of {region}, {holder} is the one longest {been}.",
                f"{holder} has been {been} longer than any other {title} in {region}.",
            ],
        )
    if longer == len(peers) - 1:
        return wording.pick(
            "service",
            [
                f"Among the {title}s of {region} {holder} is the newest.",
                f"No {title} in {region} has been {been} for a shorter time.",
                f"Every other {title} in {region} whose first day is on record began earlier.",
            ],
        )
    have = "has" if longer == 1 else "have"
    return wording.pick(
        "service",
        [
            f"In {region}, {counted(longer, title)} {have} been {been} longer.",
            f"Of {counted(len(peers), title)} in {region} whose first day is on record, {figure(longer)} "
            f"{have} been {been} longer than {holder}.",
            f"By length of service, {counted(longer, title)} in {region} {'stands' if longer == 1 else 'stand'} "
            f"ahead of {holder}.",
            f"{counted(longer, title)} in {region} {have} served longer than {holder}."
            if not office.is_throne
            else f"{counted(longer, title)} in {region} {have} reigned longer than {holder}.",
        ],
    )


def _standing(office: Office, country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """How many offices of this name there are."""
    same = [other for other in facts.world.offices if other.title == office.title]
    here = [other for other in same if facts.by_name[other.country].region == country.region]
    title = common_title(office)
    if len(same) < 3 or len(here) < 2:
        return None
    return wording.pick(
        "standing",
        [
            f"The title of {title} is in use in {counted(len(here), 'country', 'countries')} of {country.region}.",
            f"With {country.noun}, {counted(len(here), 'country', 'countries')} in {country.region} have {an(title)}.",
            f"Across {country.region} there are {counted(len(here), 'such office')}.",
            f"{counted(len(here), 'country', 'countries')} of {country.region} "
            f"{'has' if len(here) == 1 else 'have'} {an(title)}.",
            f"The same title is borne by the leaders of {counted(len(here) - 1, 'other country', 'other countries')} "
            f"in {country.region}.",
        ],
    )
