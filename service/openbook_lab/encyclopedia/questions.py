"""Questions about one world, with the answers that count and the article that gives them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from openbook_lab.encyclopedia import titles
from openbook_lab.encyclopedia.answers import capitalised, holder_answers, unique
from openbook_lab.encyclopedia.country_questions import FACTS
from openbook_lab.encyclopedia.grammar import long_date, place, possessive
from openbook_lab.encyclopedia.world import Country, Office, World


@dataclass(frozen=True, slots=True)
class Question:
    """`answers` are all accepted forms, the article's own first; `kind` is the fact, `style` the way of asking.

    `changed` says whether the fact differs between 2016 and 2018; it is always false in an invented world.
    `article_id` is the article in which the first answer stands, word for word and within one passage.
    """

    question: str
    answers: tuple[str, ...]
    kind: str
    article_id: str
    changed: bool
    style: str


def questions(world: World) -> list[Question]:
    """Every office and every fact of this world, each asked in every style. About 30,000, in a fixed order."""
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


def _of_office(office: Office, world: World) -> Iterator[Question]:
    title = titles.office_title(office)
    noun = place(office.country)
    names = {
        "title": office.title,
        "office": titles.common_title(office),
        "noun": noun,
        "noun_lower": noun.lower(),
        "whose": possessive(noun),
        "Whose": capitalised(possessive(noun)),
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
                answers=unique(day, str(office.since.year)),
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
            answers=unique(title, titles.role(office)),
            kind="holder",
            article_id=titles.article_id(titles.person_title(world, office.holder)),
            changed=office.changed,
            style=style,
        )


def _of_country(country: Country) -> Iterator[Question]:
    names = {
        "noun": country.noun,
        "noun_lower": country.noun.lower(),
        "whose": possessive(country.noun),
        "Whose": capitalised(possessive(country.noun)),
    }
    for fact in FACTS:
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
