"""The article of national symbols: anthem, adjective, internet code, and the names of the country."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.grammar import listed
from openbook_lab.encyclopedia.titles import symbols_title
from openbook_lab.encyclopedia.wording import Wording, joined
from openbook_lab.encyclopedia.world import Country


def symbols_text(country: Country, facts: Comparisons) -> str | None:
    wording = Wording(symbols_title(country))
    text = joined(
        _anthem(country, wording),
        wording.ordered("body", [_adjective(country, wording), _code(country, wording), _name(country, wording)]),
        _anthems_nearby(country, facts, wording),
        _codes_nearby(country, facts, wording),
    )
    return text or None


def _anthem(country: Country, wording: Wording) -> str | None:
    if country.anthem is None:
        return None
    noun, song = country.noun, f'"{country.anthem}"'
    meaning = country.anthem_meaning
    if meaning is None:
        return wording.pick(
            "anthem",
            [
                f"The national anthem of {noun} is {song}.",
                f"{song} is the national anthem of {noun}.",
                f"{noun} has {song} for its national anthem.",
                f"The anthem sung in {noun} is {song}.",
                f"As its national anthem {noun} has chosen {song}.",
            ][:4],
        )
    english = f'"{meaning}"'
    return wording.pick(
        "anthem",
        [
            f"The national anthem of {noun} is {song}, which means {english}.",
            f"{song}, in English {english}, is the national anthem of {noun}.",
            f"{noun} has as its national anthem {song}, or {english}.",
            f"The anthem of {noun} is called {song}; the title may be rendered as {english}.",
            f"On solemn occasions {noun} sings {song}, its national anthem. In English that is {english}.",
            f"The national anthem of {noun} bears the title {song} ({english}).",
            f"{song} is what the people of {noun} sing as their national anthem; in English it is {english}.",
        ],
    )


def _adjective(country: Country, wording: Wording) -> str | None:
    if country.adjective is None:
        return None
    noun, adjective = country.noun, country.adjective
    return wording.pick(
        "adjective",
        [
            f"What comes from {noun} is called {adjective}.",
            f"The adjective that belongs to the country is {adjective}.",
            f"Things and people of {noun} are described as {adjective}.",
            f"A citizen's nationality is {adjective}.",
            f"The adjective of nationality is {adjective}.",
            f"By nationality its people are described as {adjective}.",
            f"For {noun} the adjective {adjective} is used.",
        ],
    )


def _code(country: Country, wording: Wording) -> str | None:
    if country.internet_code is None:
        return None
    noun, code = country.noun, country.internet_code
    return wording.pick(
        "code",
        [
            f"Its internet country code is {code} and serves as its top-level domain.",
            f"The country's addresses on the internet end in {code}, its country code.",
            f"The internet country code of {noun} is {code}.",
            f"The top-level domain {code} is the internet code of {noun}.",
            f"Websites of {noun} can be told by the country code {code} at the end of their address.",
            f"On the internet {noun} has the country code {code} for its own.",
        ],
    )


def _name(country: Country, wording: Wording) -> str | None:
    if country.also_called is None:
        return None
    return wording.pick(
        "name",
        [
            f"The country is known by the name of {country.also_called} as well.",
            f"{country.also_called} is another name of the country.",
            f"Some call the country {country.also_called}.",
        ],
    )


def _anthems_nearby(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    """The anthems of up to two neighbours, or of two countries of the region when it has none."""
    near = [other for other in facts.neighbours(country) if other.anthem] or [
        other for other in facts.regions[country.region] if other.anthem and other.name != country.name
    ][:2]
    if not near:
        return None
    where = "neighbouring" if country.borders else "nearby"
    sung = listed([f'"{other.anthem}" in {other.noun}' for other in near[:2]])
    return wording.pick(
        "nearby",
        [
            f"For comparison, the anthem is {sung}.",
            f"Elsewhere in {country.region} people sing {sung}.",
            f"Of {where} countries, one sings {sung}." if len(near) == 1 else f"Anthems not far away are {sung}.",
            f"The songs of {where} countries include {sung}.",
        ],
    )


def _codes_nearby(country: Country, facts: Comparisons, wording: Wording) -> str | None:
    near = [other for other in facts.neighbours(country) if other.internet_code][2:5]
    if len(near) < 2:
        return None
    codes = listed([f"{other.internet_code} for {other.noun}" for other in near])
    return wording.pick(
        "codes",
        [
            f"Among the internet codes of its neighbours are {codes}.",
            f"Neighbours use other codes: {codes}.",
        ],
    )
