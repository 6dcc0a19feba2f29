"""Claims to judge (FEVER): JSON lines of {"claim", "label", "evidence": [[[., ., "Page_title", .], ...], ...]}."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from openbook.errors import SourceInvalid
from openbook_lab.datasets.text_files import TextFile, Wrong, get_text

Label = Literal["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
LABELS: tuple[Label, ...] = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
# FEVER's spelling of the characters that separate its tokens.
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-COLON-": ":"}
_PAGE = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, its label, and the titles of the articles that prove or refute it."""

    text: str
    label: Label
    titles: frozenset[str]


def read_claims(path: Path) -> list[Claim]:
    """The claims of a file. Raises SourceInvalid with the line that is no claim."""
    claims = list(TextFile(path).objects(lambda _, record: _claim(record)))
    if not claims:
        raise SourceInvalid(source=path, reason="holds no claim")
    return claims


def plain_title(title: str) -> str:
    """The title of an article from its page name in FEVER."""
    for written, bracket in _BRACKETS.items():
        title = title.replace(written, bracket)
    return title.replace("_", " ").strip()


def _claim(record: dict[str, Any]) -> Claim:
    text = get_text(record, "claim")
    label = next((one for one in LABELS if one == record.get("label")), None)
    if label is None:
        raise Wrong(f"label is {record.get('label')!r}, none of {', '.join(LABELS)}")
    return Claim(text, label, _titles(record.get("evidence", [])))


def _titles(evidence: Any) -> frozenset[str]:
    if not isinstance(evidence, list) or not all(isinstance(one, list) for one in evidence):
        raise Wrong("evidence is no list of lists")
    sentences = [sentence for one in evidence for sentence in one]
    if not all(isinstance(sentence, list) and len(sentence) > _PAGE for sentence in sentences):
        raise Wrong("an evidence sentence does not name its page")
    return frozenset(plain_title(str(sentence[_PAGE])) for sentence in sentences if sentence[_PAGE] is not None)
