"""The articles of an office and of the person who holds it."""

from openbook_lab.encyclopedia.comparisons import Comparisons
from openbook_lab.encyclopedia.fields import country_fields, fields, leaders, office_fields
from openbook_lab.encyclopedia.grammar import Count, Names, long_date, place
from openbook_lab.encyclopedia.titles import office_title, person_title, role
from openbook_lab.encyclopedia.wording import Fields, Phrases, heading
from openbook_lab.encyclopedia.world import Office


def office_article(office: Office, facts: Comparisons) -> tuple[str, str]:
    """Title and text. The first sentence names the holder, and the office and the country in full."""
    roles = [role(other) for other in facts.holdings[office.holder] if other is not office]
    values = _fields(office, facts) | _terms(office, facts)
    values |= {"roles": Names(roles if len(roles) < 4 else ()), "realms": Count(len(roles))}
    wording = Phrases("office", heading("office", values))
    return wording.title, wording.text(values)


def person_article(holder: str, facts: Comparisons) -> tuple[str, str]:
    """Title and text. No biography: the tables have none."""
    offices = facts.holdings[holder]
    title = person_title(facts.world, holder)
    if len(offices) > 3 and len({office.title for office in offices}) == 1:
        first = min((office.since for office in offices if office.since), default=None)
        values = office_fields(offices[0]) | fields(
            day=long_date(first) if first else None, realms=Names(place(office.country) for office in offices)
        )
        return title, Phrases("realms", title).text(values)
    wording = Phrases("person", title)
    values = _fields(offices[0], facts)
    further = [f"{office_title(other)}{office_fields(other)['day']:, since *}" for other in offices[1:]]
    common_name = facts.world.common_name(holder)
    values |= fields(further=Names(further), common_name=common_name if common_name != holder else None)
    known = wording.say("known", values)
    bare = known.removesuffix(",")
    values |= fields(known=known, known_comma=f"{bare},", known_end=bare)
    return title, wording.text(values)


def _fields(office: Office, facts: Comparisons) -> Fields:
    colleagues = [other for other in facts.offices[office.country] if other.holder != office.holder]
    only = office_fields(colleagues[0]) if len(colleagues) == 1 else {}
    return {
        **country_fields(facts.by_name[office.country]),
        **office_fields(office),
        **leaders("colleagues", colleagues),
        **fields(colleague_day=only.get("day"), colleague_been=only.get("been")),
    }


def _terms(office: Office, facts: Comparisons) -> Fields:
    """How long others of the same title have been in office in the region, and how many there are."""
    same = [other for other in facts.world.offices if other.title == office.title]
    region = facts.by_name[office.country].region
    here = [other for other in same if facts.by_name[other.country].region == region]
    since = [other.since for other in here if other.since]
    longer = sum(other < office.since for other in since) if office.since else 0
    # a queen may reign over several countries
    served = len(since) if office.since and len(since) > 3 and office.title != "Queen" else 0
    standing = len(here) if len(same) > 2 and len(here) > 1 else 0
    return {
        "served": Count(served),
        "longer": Count(longer),
        "newest": longer == served - 1,
        "here": Count(standing),
        "others_here": Count(len(here) - 1),
    }
