"""The article of a country: where it is, how it is governed and by whom, its people, its neighbours."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import an, counted, listed, number, on_date, place
from openbook_lab.encyclopedia.titles import common_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country


def country_text(country: Country, facts: Comparisons) -> str:
    wording = Wording(country.name)
    return joined(
        _opening(country, wording),
        _also_called(country, wording),
        _people(country, wording),
        wording.ordered("body", [_languages(country, wording), _land(country, wording), _past(country, wording)]),
        _leaders(country, facts, wording),
        wording.ordered("end", [_wealth(country, wording), _code(country, wording), _neighbours(country, wording)]),
    )


def _opening(country: Country, wording: Wording) -> str:
    noun, region, kind = country.noun, country.region, an(country.government_type)
    if country.capital is None:
        return wording.pick(
            "opening", [f"{noun} is {kind} in {region}.", f"{noun} is a country of {region} and {kind}."]
        )
    capital = country.capital
    return wording.pick(
        "opening",
        [
            f"{noun} is a country in {region} whose capital is {capital}.",
            f"{noun} is {kind} in {region}; its capital is {capital}.",
            f"{noun}, with its capital at {capital}, is a country of {region}.",
            f"A country of {region}, {noun} has {capital} as its capital.",
            f"{noun} is {kind} in {region}. The capital is {capital}.",
            f"In {region} lies {noun}, {kind} with {capital} as its capital.",
            f"{capital} is the capital of {noun}, a country in {region}.",
            f"{noun} is one of the countries of {region}. Its capital is {capital}.",
        ],
    )


def _also_called(country: Country, wording: Wording) -> str | None:
    if country.also_called is None:
        return None
    return wording.pick(
        "name",
        [
            f"It is also called {country.also_called}.",
            f"Another name for it is {country.also_called}.",
            f"The name {country.also_called} is in use as well.",
        ],
    )


def _people(country: Country, wording: Wording) -> str | None:
    if country.population is None:
        return None
    people = number(country.population)
    years = country.life_expectancy
    noun = country.noun
    if years is None:
        return wording.pick("people", [f"It has {people} inhabitants.", f"The country has a population of {people}."])
    return wording.pick(
        "people",
        [
            f"It has {people} inhabitants, who can expect to live {years} years.",
            f"The population is {people}, and life expectancy at birth is {years} years.",
            f"There live {people} people; a child born today may expect {years} years of life.",
            f"People there, {people} in all, have a life expectancy of {years} years.",
            f"It is home to {people} people. At birth they have {years} years before them on average.",
            f"The number of its people is put at {people} and their life expectancy at {years} years.",
            f"{noun} counts {people} people, whose life expectancy is {years} years.",
        ],
    )


def _languages(country: Country, wording: Wording) -> str | None:
    official, others = country.official_languages, country.other_languages[:6]
    noun = country.noun
    if official and others:
        is_are, tongue = ("is", "language") if len(official) == 1 else ("are", "languages")
        return wording.pick(
            "languages",
            [
                f"The official {tongue} {is_are} {listed(official)}; {listed(others)} {_is(others)} spoken too.",
                f"Officially the country speaks {listed(official)}, and beside that {listed(others)}.",
                f"{listed(official)} {'has' if len(official) == 1 else 'have'} official status, "
                f"while {listed(others)} {_is(others)} also heard.",
                f"Of the languages of the country, {listed(official)} {is_are} official; "
                f"{listed(others)} {_is(others)} not.",
                f"Beside {listed(official)}, the official {tongue}, people speak {listed(others)}.",
                f"The state uses {listed(official)}, its official {tongue}; others are spoken, among them "
                f"{listed(others)}."
                if len(others) > 1
                else f"The state uses {listed(official)}, its official {tongue}; {others[0]} is spoken as well.",
            ],
        )
    if official:
        tongue, is_are = ("language", "is") if len(official) == 1 else ("languages", "are")
        return wording.pick(
            "languages",
            [
                f"The official {tongue} {is_are} {listed(official)}.",
                f"Its official {tongue}: {listed(official)}." if len(official) > 1 else f"{official[0]} is official.",
                f"{listed(official)} {is_are} the official {tongue} of {noun}.",
                f"As official {tongue} it has {listed(official)}.",
                f"Official business is done in {listed(official)}.",
            ],
        )
    if others:
        return wording.pick(
            "languages",
            [
                f"The people speak {listed(others)}.",
                f"{listed(others)} {_is(others)} spoken in the country.",
                f"In daily life one hears {listed(others)}.",
                f"Languages spoken there include {listed(others)}."
                if len(others) > 1
                else f"Its language is {others[0]}.",
            ],
        )
    return None


def _is(words: tuple[str, ...]) -> str:
    return "is" if len(words) == 1 else "are"


def _land(country: Country, wording: Wording) -> str | None:
    if country.area is None:
        return None
    area = number(country.area)
    peak = f"{country.highest_point} ({_metres(country)})" if country.highest_point_m else country.highest_point
    return wording.pick(
        "land",
        [
            f"Its territory covers {area} square kilometres and rises to its highest point at {peak}.",
            f"The country measures {area} square kilometres; its highest point is {peak}.",
            f"It extends over {area} square kilometres, the highest point of which is {peak}.",
            f"On its {area} square kilometres the highest point is {peak}.",
            f"The highest point of its {area} square kilometres is {peak}.",
            f"With an area of {area} square kilometres, it culminates in {peak}.",
        ],
    )


def _metres(country: Country) -> str:
    return f"{number(float(country.highest_point_m))} metres" if country.highest_point_m else ""


def _past(country: Country, wording: Wording) -> str | None:
    if country.independence is None:
        return None
    when = on_date(country.independence)
    noun = country.noun
    if country.independence_from:
        origin = country.independence_from
        wordings = [
            f"It became independent from {origin} {when}.",
            f"Its independence from {origin} dates from {country.independence}.",
            f"{when} it gained independence from {origin}.",
            f"Independence from {origin} came {when}.",
        ]
        if origin.startswith(("a ", "the control")):
            wordings.append(f"{noun} has been independent since {country.independence}; it emerged from {origin}.")
        else:
            wordings.append(f"{noun} has been independent since {country.independence}, when it parted from {origin}.")
            wordings.append(f"Until {country.independence} it depended on {origin}.")
        return wording.pick("past", wordings)
    if country.gained_independence:
        return wording.pick(
            "past",
            [
                f"It declared its independence {when}.",
                f"Its independence was declared {when}.",
                f"The declaration of its independence dates from {country.independence}.",
                f"{noun} has been independent since it declared itself so {when}.",
            ],
        )
    if country.founding_event:
        return wording.pick(
            "past",
            [
                f"A date that stands at its beginning is {country.independence}: {country.founding_event}.",
                f"The state looks back to {country.founding_event}, {when}.",
                f"Its history as a state is counted from {country.independence}, the date of {country.founding_event}.",
            ],
        )
    return wording.pick("past", [f"The state dates from {country.independence}.", f"It came into being {when}."])


def _leaders(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    offices = facts.offices_of(country.name)
    if not offices:
        return None
    plainly = listed([f"the {common_title(office)} is {office.holder}" for office in offices])
    held = listed([f"{office.holder} ({common_title(office)})" for office in offices])
    acting = listed([f"{office.holder} as {common_title(office)}" for office in offices])
    noun = country.noun
    return wording.pick(
        "leaders",
        [
            f"Of those who lead it, {plainly}.",
            f"{noun} is led by {held}.",
            f"At the head of the state {'stands' if len(offices) == 1 else 'stand'} {held}.",
            f"It is led by {acting}.",
            f"In the leadership of {noun}, {plainly}.",
            f"The leading {'office is' if len(offices) == 1 else 'offices are'} held by {acting}.",
            f"Its leadership lies with {acting}.",
        ],
    )


def _wealth(country: Country, wording: Wording) -> str | None:
    if country.gdp is None:
        return None
    return wording.pick(
        "wealth",
        [
            f"The economy produces {country.gdp} a year at purchasing power parity.",
            f"Its gross domestic product, at purchasing power parity, is {country.gdp}.",
            f"Measured at purchasing power parity, the gross domestic product amounts to {country.gdp}.",
            f"A gross domestic product of {country.gdp} is recorded for it.",
            f"The yearly output of its economy is worth {country.gdp} at purchasing power parity.",
            f"Its GDP stands at {country.gdp}.",
        ],
    )


def _code(country: Country, wording: Wording) -> str | None:
    if country.internet_code is None:
        return None
    return wording.pick(
        "code",
        [
            f"Its internet country code is {country.internet_code}.",
            f"Web addresses of the country end in {country.internet_code}.",
            f"On the internet it is known by the code {country.internet_code}.",
            f"The internet code of the country is {country.internet_code}.",
        ],
    )


def _neighbours(country: Country, wording: Wording) -> str | None:
    names = [place(name) for name in country.borders]
    if not names:
        return None
    if len(names) == 1:
        return wording.pick(
            "neighbours",
            [
                f"{names[0]} is its one neighbour by land.",
                f"By land it borders only {names[0]}.",
                f"Its only land border is that with {names[0]}.",
            ],
        )
    return wording.pick(
        "neighbours",
        [
            f"It borders {listed(names)}.",
            f"Its neighbours are {listed(names)}.",
            f"By land it adjoins {listed(names)}.",
            f"{noun_count(names)} border on it: {listed(names)}.",
            f"Around it lie {listed(names)}.",
            f"It has land borders with {listed(names)}.",
        ],
    )


def noun_count(names: list[str]) -> str:
    return counted(len(names), "territory", "territories" if len(names) > 1 else None)
