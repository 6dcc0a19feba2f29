"""Names of offices, and the titles of their articles and persons. Articles, questions and tests share them."""

import re
import unicodedata

from openbook_lab.encyclopedia.grammar import place
from openbook_lab.encyclopedia.world import Office, World

_NUMERAL = re.compile(r"[IVX]+")


def article_id(title: str) -> str:
    """The title as a slug: "president-of-peru". Stable, since titles are."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain.replace("'", "")).strip("-")


def office_title(office: Office) -> str:
    """ "President of the Philippines"; the Pope is the Pope."""
    return office.title if office.title == "Pope" else f"{office.title} of {place(office.country)}"


def role(office: Office) -> str:
    """The office in running text: "the president of Peru", "the pope"."""
    return f"the {common_title(office)} of {place(office.country)}" if office.title != "Pope" else "the pope"


def common_title(office: Office) -> str:
    """ "prime minister", "chairman of the Council of Ministers"."""
    if office.title == "Chairman of the Council of Ministers":
        return "chairman of the Council of Ministers"
    return office.title.lower()


def person_title(world: World, holder: str) -> str:
    """The common name. A monarch with a single name, or a numbered one, has the throne in the title too."""
    name = world.common_name(holder)
    offices = world.offices_held_by(holder)
    if len(offices) != 1 or not offices[0].is_throne:
        return name
    if offices[0].title == "Pope":
        return f"Pope {name}"
    words = name.split()
    numbered = _NUMERAL.fullmatch(words[-1]) is not None
    return f"{name} of {place(offices[0].country)}" if len(words) == 1 or numbered else name
