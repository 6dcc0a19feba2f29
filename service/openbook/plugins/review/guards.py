"""What is expected of answers, and what an answer does to it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, model_validator

from openbook import entities
from openbook.application import guarding
from openbook.errors import SourceInvalid
from openbook.plugins.review.settings import GuardSettings
from openbook.settings import Settings
from openbook.storage.json_lines import read_json_lines
from openbook_client import Answer

Change = Literal["same", "changed", "withheld", "answered"]
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]

# Of the service's questions.
MAX_QUESTION = 2_000
CODE_MARK = "`"


class Guard(BaseModel):
    """A question, and what its answer must hold. Without any expectation, changes are only reported.

    must_contain      each stands in the answer or in its evidence, whatever the case and the spaces
    must_not_contain  none stands in the answer
    must_refuse       the answer is withheld
    must_cite         stands in the id, the title or the url of a passage that the evidence is from
    warn              a broken expectation is reported, and fails nothing
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION)]
    must_contain: Texts = ()
    must_not_contain: Texts = ()
    must_refuse: bool = False
    must_cite: Texts = ()
    warn: bool = False

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        if self.must_refuse and (self.must_contain or self.must_cite):
            raise ValueError("must_refuse goes without must_contain and must_cite: a withheld answer holds nothing")
        return self

    @property
    def expects_something(self) -> bool:
        return bool(self.must_contain or self.must_not_contain or self.must_refuse or self.must_cite)

    def breaks(self, answer: entities.Answer) -> list[str]:
        """What an answer of the service breaks, unless that is to be reported alone."""
        return [] if self.warn else broken(self, Answer.model_validate(answer))


def read_guards(path: Path) -> list[Guard]:
    """The guards of a file of JSON lines. Raises SourceInvalid, with its line, for one that is none."""
    guards = list(read_json_lines(path, Guard).values())
    if not guards:
        raise SourceInvalid(source=path, reason="there is no question in it")
    return guards


def guard_of_file(settings: Settings) -> guarding.GuardSource | None:
    """The guard of `OPENBOOK_GUARD`."""
    if not isinstance(settings, GuardSettings) or settings.guard is None:
        return None
    path = settings.guard
    return guarding.GuardSource(lambda: read_guards(path), settings.guard_s)


def plain(text: str) -> str:
    """The text as texts are compared: case and the number of spaces do not count."""
    return " ".join(text.casefold().split())


def broken(guard: Guard, answer: Answer) -> list[str]:
    """What the answer breaks, a sentence each."""
    if guard.must_refuse:
        return [] if answer.answer is None else [f"must be withheld, and says {answer.answer!r}"]
    found = []
    said = plain(answer.answer or "")
    shown = " ".join([said, *(plain(one.text) for one in answer.evidence)]) if answer.answer is not None else ""
    found += [f"lacks {text!r}" for text in guard.must_contain if not _stands_in(shown, text)]
    found += [f"says {text!r}" for text in guard.must_not_contain if _stands_in(said, text)]
    passages = {one.passage_id: one for one in answer.passages}
    cited = [passages[one.passage_id] for one in answer.evidence if one.passage_id in passages]
    places = [f"{one.passage_id}\n{one.title}\n{one.url or ''}" for one in cited]
    found += [f"does not cite {text!r}" for text in guard.must_cite if not any(text in place for place in places)]
    return found


def _stands_in(shown: str, text: str) -> bool:
    """Whether a plain text holds this one. A passage keeps the marks of code; they count where `text` has some."""
    return plain(text) in (shown if CODE_MARK in text else plain(shown.replace(CODE_MARK, "")))


def change_of(before: Answer, after: Answer) -> Change:
    if before.answer is None or after.answer is None:
        return "same" if before.answer == after.answer else "withheld" if after.answer is None else "answered"
    return "same" if plain(before.answer) == plain(after.answer) else "changed"


def learnt(guard: Guard, answer: Answer) -> Guard:
    """The guard with what is answered now as what is expected; one that expects something stays as it is."""
    if guard.expects_something:
        return guard
    expected: Mapping[str, Any] = (
        {"must_refuse": True} if answer.answer is None else {"must_contain": (answer.answer.strip(),)}
    )
    return guard.model_copy(update=dict(expected))


def as_lines(guards: Sequence[Guard]) -> str:
    return "".join(f"{guard.model_dump_json(exclude_defaults=True)}\n" for guard in guards)
