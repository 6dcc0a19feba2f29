"""Questions about one world, with the answers that count and the article that gives them."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.offline.encyclopedia import titles
from service.offline.encyclopedia.grammar import listed, long_date, number, place, possessive
from service.offline.encyclopedia.world import Country, Office, World


@dataclass(frozen=True, slots=True)
class Question:
    """`answers` are all accepted forms, the article's own first; `kind` is the fact, `style` the way of asking.

    `changed` says whether the fact differs between 2016 and 2018; it is always false in an invented world.
    `article_id` is the article that states the answer in its first passage or the next.
    """

    question: str
    answers: tuple[str, ...]
    kind: str
    article_id: str
    changed: bool
    style: str


@dataclass(frozen=True, slots=True)
class _Fact:
    kind: str
    field: str
    title: Callable[[Country], str]
    answers: Callable[[Country], tuple[str, ...]]
    ways: tuple[tuple[str, str], ...]


def questions(world: World) -> list[Question]:
    """Every office and every fact of this world, each asked in every style. About 25,000, in a fixed order."""
    found = [question for office in world.offices for question in _of_office(office, world)]
    found += [question for office in _sole_holders(world) for question in _of_holder(office, world)]
    found += [question for country in world.countries for question in _of_country(country)]
    return found


# --- who holds an office -----------------------------------------------------------------------------------

_OFFICE_WAYS = (
    ("plain", "Who is the {title} of {noun}?"),
    ("lower", "who is the {office} of {noun_lower}"),
    ("keywords", "{office} of {noun_lower}"),
    ("name", "Name the {office} of {noun}."),
    ("possessive", "Who is {whose} {office}?"),
    ("inverted", "{Whose} {office} is who?"),
    ("holds", "Who holds the office of {title} in {noun}?"),
    ("tell", "Tell me who the {office} of {noun} is."),
    ("currently", "Who is currently {office} of {noun}?"),
    ("which", "Which person is the {office} of {noun} now?"),
)

_GOVERNMENT_HEADS = ("Prime Minister", "Premier", "Chancellor", "Head of Government", "President of the Government")

_POPE_WAYS = (
    ("plain", "Who is the Pope?"),
    ("lower", "who is the pope"),
    ("keywords", "pope name"),
    ("name", "Name the pope."),
    ("holds", "Who holds the office of Pope?"),
    ("tell", "Tell me who the pope is."),
    ("possessive", "Who is the Holy See's pope?"),
    ("currently", "Who is currently the pope?"),
)


def holder_answers(holder: str, world: World) -> tuple[str, ...]:
    """The holder as the articles spell the name, then the shorter and better known forms."""
    common = world.common_name(holder)
    words = holder.split()
    without_initials = " ".join(word for word in words if not (len(word) == 2 and word.endswith(".")))
    return _unique(holder, common, without_initials)


def _of_office(office: Office, world: World) -> Iterator[Question]:
    title = titles.office_title(office)
    noun = place(office.country)
    names = {
        "title": office.title,
        "office": titles.common_title(office),
        "noun": noun,
        "noun_lower": noun.lower(),
        "whose": possessive(noun),
        "Whose": _capitalised(possessive(noun)),
    }
    ways = list(_POPE_WAYS if office.title == "Pope" else _OFFICE_WAYS)
    if office.title in _GOVERNMENT_HEADS:
        ways.append(("function", "Who leads the government of {noun}?"))
    if office.is_throne and office.title != "Pope":
        ways.append(("function", "Who reigns in {noun}?"))
    if office.since:
        names |= {"year": str(office.since.year), "day": long_date(office.since)}
        ways.append(("since", "Who has been {office} of {noun} since {year}?"))
    for style, way in ways:
        yield Question(
            question=way.format(**names),
            answers=holder_answers(office.holder, world),
            kind="office",
            article_id=titles.article_id(title),
            changed=office.changed,
            style=style,
        )
    if office.since:
        day = long_date(office.since)
        for style, way in _SINCE_WAYS:
            yield Question(
                question=way.format(holder=office.holder, role=titles.role(office), title=title),
                answers=_unique(day, str(office.since.year)),
                kind="since",
                article_id=titles.article_id(title),
                changed=office.term_changed,
                style=style,
            )


_SINCE_WAYS = (
    ("plain", "When did {holder} become {title}?"),
    ("lower", "when did {holder} become {role}"),
    ("how_long", "Since when has {holder} been {role}?"),
    ("name", "Give the date on which {holder} became {title}."),
    ("which", "On which day did {holder} take office as {title}?"),
    ("keywords", "{holder} {title} since"),
)


# --- which office a person holds ---------------------------------------------------------------------------

_HOLDER_WAYS = (
    ("plain", "What office does {name} hold?"),
    ("lower", "what office does {name} hold"),
    ("name", "Name the office held by {name}."),
    ("who", "Who is {name}?"),
    ("keywords", "{name} office"),
    ("tell", "Tell me which office {name} holds."),
    ("which", "Of what is {name} the leader?"),
)


def _sole_holders(world: World) -> Iterator[Office]:
    held = Counter(office.holder for office in world.offices)
    return (office for office in world.offices if held[office.holder] == 1)


def _of_holder(office: Office, world: World) -> Iterator[Question]:
    title = titles.office_title(office)
    for style, way in _HOLDER_WAYS:
        yield Question(
            question=way.format(name=world.common_name(office.holder)),
            answers=_unique(title, titles.role(office)),
            kind="holder",
            article_id=titles.article_id(titles.person_title(world, office.holder)),
            changed=office.changed,
            style=style,
        )


# --- facts of a country ------------------------------------------------------------------------------------


def _ways(**ways: str) -> tuple[tuple[str, str], ...]:
    return tuple(ways.items())


def _name(country: Country) -> str:
    return country.name


def _languages(country: Country) -> tuple[str, ...]:
    return _unique(listed(country.official_languages), *country.official_languages)


_FACTS = (
    _Fact(
        "capital",
        "capital",
        _name,
        lambda country: _unique(country.capital),
        _ways(
            plain="What is the capital of {noun}?",
            lower="what is the capital of {noun_lower}",
            keywords="capital of {noun_lower}",
            name="Name the capital of {noun}.",
            possessive="What is {whose} capital?",
            inverted="{Whose} capital is which city?",
            which="Which city is the capital of {noun}?",
            tell="Tell me the capital of {noun}.",
        ),
    ),
    _Fact(
        "population",
        "population",
        titles.population_title,
        lambda country: _counts(country.population),
        _ways(
            plain="What is the population of {noun}?",
            lower="what is the population of {noun_lower}",
            keywords="population {noun_lower}",
            how="How many people live in {noun}?",
            possessive="What is {whose} population?",
            inverted="{Whose} population is how large?",
            tell="Tell me how many inhabitants {noun} has.",
            name="Give the number of inhabitants of {noun}.",
        ),
    ),
    _Fact(
        "gdp",
        "gdp",
        titles.economy_title,
        lambda country: _money(country.gdp),
        _ways(
            plain="What is the GDP of {noun}?",
            lower="what is the gdp of {noun_lower}",
            keywords="gdp {noun_lower}",
            how="How large is the economy of {noun}?",
            possessive="What is {whose} gross domestic product?",
            inverted="{Whose} GDP is how much?",
            tell="Tell me the gross domestic product of {noun}.",
            name="Give the GDP of {noun} at purchasing power parity.",
        ),
    ),
    _Fact(
        "life_expectancy",
        "life_expectancy",
        titles.population_title,
        lambda country: _measured(country.life_expectancy, "years"),
        _ways(
            plain="What is the life expectancy in {noun}?",
            lower="what is the life expectancy in {noun_lower}",
            keywords="life expectancy {noun_lower}",
            how="How long do people in {noun} live on average?",
            possessive="What is {whose} life expectancy?",
            inverted="{Whose} life expectancy is how many years?",
            tell="Tell me the life expectancy at birth in {noun}.",
            name="Give the life expectancy of {noun}.",
        ),
    ),
    _Fact(
        "unemployment",
        "unemployment_pct",
        titles.economy_title,
        lambda country: (
            _unique(
                *(f"{country.unemployment_pct}{unit}" for unit in (" percent", "%", " per cent", "")),
            )
            if country.unemployment_pct
            else ()
        ),
        _ways(
            plain="What is the unemployment rate of {noun}?",
            lower="what is the unemployment rate in {noun_lower}",
            keywords="unemployment rate {noun_lower}",
            how="How high is unemployment in {noun}?",
            possessive="What is {whose} unemployment rate?",
            inverted="{Whose} unemployment rate is how high?",
            tell="Tell me the rate of unemployment in {noun}.",
            name="Give the unemployment rate of {noun}.",
        ),
    ),
    _Fact(
        "area",
        "area_km2",
        titles.geography_title,
        lambda country: _measured(
            number(country.area) if country.area is not None else None,
            "square kilometres",
            "sq km",
            "square kilometers",
        ),
        _ways(
            plain="What is the area of {noun}?",
            lower="what is the area of {noun_lower}",
            keywords="area of {noun_lower} square kilometres",
            how="How large is {noun}?",
            possessive="What is {whose} area?",
            inverted="{Whose} territory covers how many square kilometres?",
            tell="Tell me how big {noun} is.",
            name="Give the area of {noun} in square kilometres.",
        ),
    ),
    _Fact(
        "highest_point",
        "highest_point",
        titles.geography_title,
        lambda country: (
            _unique(country.highest_point)
            if country.highest_point and not country.highest_point.startswith("an unnamed")
            else ()
        ),
        _ways(
            plain="What is the highest point of {noun}?",
            lower="what is the highest point in {noun_lower}",
            keywords="highest point {noun_lower}",
            name="Name the highest point of {noun}.",
            possessive="What is {whose} highest point?",
            inverted="{Whose} highest point is what?",
            which="Which place is the highest in {noun}?",
            tell="Tell me the highest point in {noun}.",
        ),
    ),
    _Fact(
        "elevation",
        "highest_point_m",
        titles.geography_title,
        lambda country: _measured(
            number(float(country.highest_point_m)) if country.highest_point_m else None, "metres", "m", "meters"
        ),
        _ways(
            plain="How high is the highest point of {noun}?",
            lower="how high is the highest point of {noun_lower}",
            keywords="elevation highest point {noun_lower}",
            possessive="What is the elevation of {whose} highest point?",
            name="Give the height of the highest point of {noun}.",
            tell="Tell me how high {noun} rises.",
        ),
    ),
    _Fact(
        "borders",
        "borders",
        titles.geography_title,
        lambda country: _unique(listed(_placed(country)), *_placed(country), ", ".join(country.borders)),
        _ways(
            plain="Which country borders {noun}?",
            lower="what country borders {noun_lower}",
            keywords="{noun_lower} borders",
            name="Name a neighbour of {noun}.",
            possessive="What is one of {whose} neighbours?",
            which="With which country does {noun} share a land border?",
            tell="Tell me a country that {noun} borders.",
        ),
    ),
    _Fact(
        "language",
        "official_languages",
        titles.population_title,
        _languages,
        _ways(
            plain="What is the official language of {noun}?",
            lower="what is the official language of {noun_lower}",
            keywords="official language {noun_lower}",
            name="Name an official language of {noun}.",
            possessive="What is {whose} official language?",
            inverted="{Whose} official language is what?",
            which="Which language is official in {noun}?",
            tell="Tell me the official language of {noun}.",
        ),
    ),
    _Fact(
        "independence",
        "independence",
        titles.history_title,
        lambda country: _dates(country.independence) if country.gained_independence else (),
        _ways(
            plain="When did {noun} become independent?",
            lower="when did {noun_lower} become independent",
            keywords="{noun_lower} independence date",
            since="Since when has {noun} been independent?",
            possessive="What is the date of {whose} independence?",
            name="Give the date of the independence of {noun}.",
            which="On which day did {noun} gain independence?",
            tell="Tell me when {noun} became independent.",
        ),
    ),
    _Fact(
        "independence_from",
        "independence_from",
        titles.history_title,
        lambda country: _unique(country.independence_from, (country.independence_from or "").removeprefix("the ")),
        _ways(
            plain="From whom did {noun} become independent?",
            lower="from what country did {noun_lower} become independent",
            keywords="{noun_lower} independence from",
            name="Name the power from which {noun} gained independence.",
            which="From which state did {noun} gain its independence?",
            tell="Tell me from whom {noun} became independent.",
        ),
    ),
    _Fact(
        "government",
        "government_type",
        titles.government_title,
        lambda country: _unique(country.government_type),
        _ways(
            plain="What type of government does {noun} have?",
            lower="what type of government does {noun_lower} have",
            keywords="government type {noun_lower}",
            how="How is {noun} governed?",
            possessive="What is {whose} form of government?",
            inverted="{Whose} form of government is what?",
            tell="Tell me what kind of state {noun} is.",
            name="Name the form of government of {noun}.",
        ),
    ),
    _Fact(
        "internet_code",
        "internet_code",
        titles.symbols_title,
        lambda country: _unique(country.internet_code, (country.internet_code or "").removeprefix(".")),
        _ways(
            plain="What is the internet country code of {noun}?",
            lower="what is the internet country code of {noun_lower}",
            keywords="internet code {noun_lower}",
            name="Give the internet country code of {noun}.",
            possessive="What is {whose} internet code?",
            inverted="{Whose} web addresses end in what?",
            which="Which internet code belongs to {noun}?",
            tell="Tell me the top-level domain of {noun}.",
        ),
    ),
    _Fact(
        "nationality",
        "adjective",
        titles.symbols_title,
        lambda country: _unique(country.adjective),
        _ways(
            plain="What is the adjective for {noun}?",
            lower="what do you call something from {noun_lower}",
            keywords="{noun_lower} adjective of nationality",
            name="Give the adjective of nationality of {noun}.",
            possessive="What is {whose} adjective of nationality?",
            how="How does one describe what comes from {noun}?",
            tell="Tell me the nationality of people from {noun}.",
        ),
    ),
    _Fact(
        "anthem",
        "anthem",
        titles.symbols_title,
        lambda country: _unique(country.anthem),
        _ways(
            plain="What is the national anthem of {noun}?",
            lower="what is the national anthem of {noun_lower}",
            keywords="national anthem {noun_lower}",
            name="Name the national anthem of {noun}.",
            possessive="What is {whose} national anthem called?",
            inverted="{Whose} anthem is what?",
            which="Which song is the national anthem of {noun}?",
            tell="Tell me the title of the national anthem of {noun}.",
        ),
    ),
)


def _of_country(country: Country) -> Iterator[Question]:
    names = {
        "noun": country.noun,
        "noun_lower": country.noun.lower(),
        "whose": possessive(country.noun),
        "Whose": _capitalised(possessive(country.noun)),
    }
    for fact in _FACTS:
        answers = fact.answers(country)
        if not answers:
            continue
        for style, way in fact.ways:
            yield Question(
                question=way.format(**names),
                answers=answers,
                kind=fact.kind,
                article_id=titles.article_id(fact.title(country)),
                changed=fact.field in country.changed,
                style=style,
            )


# --- accepted forms of an answer ---------------------------------------------------------------------------


def _unique(*answers: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(answer for answer in answers if answer))


def _counts(value: int | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return _unique(number(value), str(value), f"{value / 1e6:.1f} million" if value >= 1e6 else None)


def _money(value: str | None) -> tuple[str, ...]:
    return () if value is None else _unique(value, value.removeprefix("$"), f"{value.removeprefix('$')} dollars")


def _measured(value: str | None, *units: str) -> tuple[str, ...]:
    return () if value is None else _unique(*(f"{value} {unit}" for unit in units), value)


def _dates(value: str | None) -> tuple[str, ...]:
    return () if value is None else _unique(value, value.split()[-1])


def _placed(country: Country) -> list[str]:
    return [place(name) for name in country.borders]


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
