"""Questions about one world, with the accepted answers and the article that gives them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from openbook_lab.encyclopedia import titles
from openbook_lab.encyclopedia.fields import country_fields
from openbook_lab.encyclopedia.grammar import listed, long_date, number, place, possessive
from openbook_lab.encyclopedia.wording import heading, table
from openbook_lab.encyclopedia.world import Country, Office, World

_HEADS_OF_GOVERNMENT = ("Prime Minister", "Premier", "Chancellor", "Head of Government", "President of the Government")


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """`answers` are all accepted forms, the article's own first; `kind` is the fact, `style` the way of asking.

    `article_id` is the article that states the first answer, word for word and within one passage.
    """

    question: str
    answers: tuple[str, ...]
    kind: str
    article_id: str
    style: str


@lru_cache(maxsize=2)
def questions(world: World) -> tuple[WorldQuestion, ...]:
    """Every office and every fact of this world, each asked in every style. About 30,000, in a fixed order.

    Writing them takes a second, so the questions of the last two worlds are kept.
    """
    held = Counter(office.holder for office in world.offices)
    found = [question for office in world.offices for question in _of_office(office, world)]
    for office in world.offices:
        if held[office.holder] == 1:
            found += _of_holder(office, world)
    found += [question for country in world.countries for question in _of_country(country)]
    return tuple(found)


def _asked(
    kind: str, ways: Mapping[str, str], names: Mapping[str, str], answers: tuple[str, ...], title: str
) -> Iterator[WorldQuestion]:
    for style, way in ways.items():
        yield WorldQuestion(way.format_map(names), answers, kind, titles.article_id(title), style)


def _of_office(office: Office, world: World) -> Iterator[WorldQuestion]:
    ways, title = table("questions"), titles.office_title(office)
    names = {"title": office.title, "office": titles.common_title(office), **_nouns(place(office.country))}
    asked = dict(ways["pope" if office.title == "Pope" else "office"])
    if office.title in _HEADS_OF_GOVERNMENT:
        asked |= ways["head-of-government"]
    if office.is_throne and office.title != "Pope":
        asked |= ways["throne"]
    if office.since:
        asked |= ways["dated"]
        names["year"] = str(office.since.year)
    yield from _asked("office", asked, names, _holder_answers(office.holder, world), title)
    if office.since:
        names = {"holder": office.holder, "role": titles.role(office), "title": title}
        answers = _unique(long_date(office.since), str(office.since.year))
        yield from _asked("since", ways["since"], names, answers, title)


def _of_holder(office: Office, world: World) -> Iterator[WorldQuestion]:
    answers = _unique(titles.office_title(office), titles.role(office))
    names, title = {"name": world.common_name(office.holder)}, titles.person_title(world, office.holder)
    yield from _asked("holder", table("questions")["holder"], names, answers, title)


def _of_country(country: Country) -> Iterator[WorldQuestion]:
    names, values = _nouns(country.noun), country_fields(country)
    for kind, fact in table("questions")["facts"].items():
        if answers := _ANSWERS[kind](country):
            title = heading(fact["article"], values)
            yield from _asked(kind, fact["ways"], names, answers, title)


def _nouns(noun: str) -> dict[str, str]:
    whose = possessive(noun)
    return {"noun": noun, "noun_lower": noun.lower(), "whose": whose, "Whose": whose[0].upper() + whose[1:]}


# --- accepted answers: the article's own form first, none where the fact is missing ---------------------------------


def _unique(*answers: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(answer for answer in answers if answer))


def _holder_answers(holder: str, world: World) -> tuple[str, ...]:
    """The holder as the articles spell the name, then the shorter and better known forms."""
    without_initials = " ".join(word for word in holder.split() if not (len(word) == 2 and word.endswith(".")))
    return _unique(holder, world.common_name(holder), without_initials)


def _measured(value: str | float | None, units: Iterable[str]) -> tuple[str, ...]:
    """The number with each of the units."""
    if value is None:
        return ()
    return _unique(*(f"{value if isinstance(value, str) else number(value)}{unit}" for unit in units))


def _money(country: Country) -> tuple[str, ...]:
    dollars = (country.gdp or "").removeprefix("$")
    return _unique(country.gdp, dollars, dollars and f"{dollars} dollars")


def _people(country: Country) -> tuple[str, ...]:
    people = country.population
    if people is None:
        return ()
    return _unique(number(people), str(people), f"{people / 1e6:.1f} million" if people >= 1e6 else None)


def _summit(country: Country) -> tuple[str, ...]:
    return () if (country.highest_point or "").startswith("an unnamed") else _unique(country.highest_point)


def _borders(country: Country) -> tuple[str, ...]:
    placed = [place(name) for name in country.borders]
    return _unique(listed(placed), *placed, ", ".join(country.borders))


def _independence(country: Country) -> tuple[str, ...]:
    day = country.independence if country.gained_independence else None
    return _unique(day, day and day.split()[-1])


_ANSWERS: dict[str, Callable[[Country], tuple[str, ...]]] = {
    "capital": lambda country: _unique(country.capital),
    "population": _people,
    "gdp": _money,
    "life_expectancy": lambda country: _measured(country.life_expectancy, (" years", "")),
    "unemployment": lambda country: _measured(country.unemployment_pct, (" percent", "%", " per cent", "")),
    "area": lambda country: _measured(country.area, (" square kilometres", " sq km", " square kilometers", "")),
    "highest_point": _summit,
    "elevation": lambda country: _measured(
        float(country.highest_point_m) if country.highest_point_m else None, (" metres", " m", " meters", "")
    ),
    "borders": _borders,
    "language": lambda country: _unique(listed(country.official_languages), *country.official_languages),
    "independence": _independence,
    "independence_from": lambda country: _unique(
        country.independence_from, (country.independence_from or "").removeprefix("the ")
    ),
    "government": lambda country: _unique(country.government_type),
    "internet_code": lambda country: _unique(country.internet_code, (country.internet_code or "").removeprefix(".")),
    "nationality": lambda country: _unique(country.adjective),
    "anthem": lambda country: _unique(country.anthem),
}
