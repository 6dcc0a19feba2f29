"""The prompt of a causal language model. `openbook.json` of a checkpoint holds it as `prompt`.

    {
      "system": "Answer with a few words of the passage ...",
      "user": "Passage: {passage}\\n\\nQuestion: {question}",
      "opening": "Answer: ",
      "shots": [{"title": "...", "text": "...", "question": "...", "answer": "..."}],
      "refusals": ["unknown"],
      "stops": ["\\n"],
      "chat": true,
      "longest_passage": 512
    }

`user` is what is asked of each passage, and `opening` the beginning of the answer that the prompt itself writes.
`shots` are examples. An answer that is one of `refusals` counts as the empty answer. A token that begins with one of
`stops` ends an answer, beside the model's own end-of-sequence tokens. Where `chat` is true, the tokenizer's chat
template joins the parts. A passage of more than `longest_passage` tokens loses its end.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from openbook.errors import CheckpointInvalid, first_defect

PASSAGE, QUESTION = "{passage}", "{question}"
LONGEST_PASSAGE = 512

Texts = tuple[Annotated[str, Field(min_length=1)], ...]


def _asking(user: str) -> str:
    if user.count(PASSAGE) != 1 or user.count(QUESTION) != 1 or user.index(PASSAGE) > user.index(QUESTION):
        raise ValueError(
            f"holds {PASSAGE} once, and after it {QUESTION} once: a passage is read before it is known what is "
            "asked of it"
        )
    return user


@dataclass(frozen=True, slots=True)
class Shot:
    """An example: a passage, a question and what to answer."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    title: str
    text: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class CausalPrompt:
    """The words around a passage and a question. `parse` checks them."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    user: Annotated[str, AfterValidator(_asking)]
    system: str = ""
    opening: str = ""
    shots: tuple[Shot, ...] = ()
    refusals: Texts = ()
    stops: Texts = ()
    chat: bool = False
    longest_passage: Annotated[int, Field(ge=1)] = LONGEST_PASSAGE

    @classmethod
    def parse(cls, content: Any) -> "CausalPrompt":
        """Raises ValueError for what is no prompt, and says why."""
        try:
            return TypeAdapter(CausalPrompt).validate_json(json.dumps(content), strict=True)
        except ValidationError as error:
            raise ValueError(first_defect(error)) from error

    def content(self) -> dict[str, Any]:
        """What `parse` reads."""
        return asdict(self)


def read_prompt(path: Path) -> CausalPrompt:
    """The prompt of a file. Raises CheckpointInvalid for one that cannot be read or is no prompt."""
    try:
        return CausalPrompt.parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise CheckpointInvalid(checkpoint=str(path), reason=f"its prompt: {error}") from error


def passage_text(heading: str, text: str) -> str:
    """A passage as a prompt shows it: its heading on a line of its own, where it has one."""
    return f"{heading.strip()}\n{text.strip()}".strip()


def as_text(prompt: CausalPrompt) -> str:
    """A prompt that is no chat, with the marks of passage and question in their places."""
    system = [prompt.system] if prompt.system else []
    shots = [f"{user}{prompt.opening}{answer}" for user, answer in _examples(prompt)]
    return "\n\n".join([*system, *shots, f"{prompt.user}{prompt.opening}"])


def as_turns(prompt: CausalPrompt) -> list[dict[str, str]]:
    """The turns of a chat up to the answer, with the marks of passage and question in the last one."""
    turns = [{"role": "system", "content": prompt.system}] if prompt.system else []
    for user, answer in _examples(prompt):
        turns += [{"role": "user", "content": user}, {"role": "assistant", "content": f"{prompt.opening}{answer}"}]
    return [*turns, {"role": "user", "content": prompt.user}]


def filled(text: str, passage: str, question: str) -> str:
    """A text with passage and question in the places of their marks."""
    before, _, rest = text.partition(PASSAGE)
    between, _, after = rest.partition(QUESTION)
    return f"{before}{passage}{between}{question}{after}"


def _examples(prompt: CausalPrompt) -> list[tuple[str, str]]:
    """What is asked in each example, and the answer."""
    return [
        (filled(prompt.user, passage_text(shot.title, shot.text), shot.question), shot.answer) for shot in prompt.shots
    ]


SHORT_ANSWERS = CausalPrompt(
    system="Answer the question with a few words copied from the passage. If the passage does not hold the answer, "
    "say: unknown",
    user="Passage: {passage}\n\nQuestion: {question}",
    shots=(
        Shot(
            "Mount Kenya",
            "Mount Kenya is the highest mountain in Kenya and the second-highest in Africa, after Kilimanjaro. Its "
            "highest peak is Batian, at 5,199 metres.",
            "what is the highest peak of mount kenya",
            "Batian",
        ),
        Shot(
            "Radium",
            "Radium was discovered by Marie and Pierre Curie in 1898 in a sample of uraninite. It was isolated as a "
            "metal in 1911.",
            "when was radium discovered",
            "1898",
        ),
        Shot(
            "Lake Titicaca",
            "Lake Titicaca is a large freshwater lake in the Andes on the border of Bolivia and Peru. It is often "
            "called the highest navigable lake in the world.",
            "who wrote the first symphony of brahms",
            "unknown",
        ),
        Shot(
            "Danish krone",
            "The krone is the official currency of Denmark, Greenland and the Faroe Islands, introduced on 1 January "
            "1875.",
            "what money do they use in greenland",
            "krone",
        ),
        Shot(
            "Middlemarch",
            "Middlemarch, A Study of Provincial Life is a novel by the English author Mary Ann Evans, who wrote as "
            "George Eliot. It appeared in eight instalments in 1871 and 1872.",
            "who wrote middlemarch",
            "George Eliot",
        ),
    ),
    refusals=("unknown", "Unknown"),
    stops=("\n",),
)
"""The prompt of a checkpoint that brings none: short answers, from the passage alone."""
