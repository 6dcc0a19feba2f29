"""Answers as they come, one JSON line each: a run that was killed goes on from those that it wrote."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from openbook.errors import SourceInvalid


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What a question was answered with. `posterior` is over its passages, as the engine gives it.

    `no_answer` is the probability of the empty answer; None where no engine was asked.
    """

    text: str
    log_prob: float
    posterior: tuple[float, ...]
    no_answer: float | None = None


class AnswerLog:
    """The answers of one checkpoint over one book, by setting and question."""

    def __init__(self, path: Path) -> None:
        """Read what is there. A last line that was cut short is dropped.

        Raises SourceInvalid for any other line that is none of ours.
        """
        self._path = path
        self._answers: dict[tuple[str, str], GivenAnswer] = {}
        if path.is_file():
            self._read()

    def get(self, setting: str, question: str) -> GivenAnswer | None:
        """The answer that was written for this question under this setting; None: it has yet to be asked."""
        return self._answers.get((setting, question))

    def add(self, setting: str, answers: Iterable[tuple[str, GivenAnswer]]) -> None:
        """Write the answers to these questions, and keep them."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for question, answer in answers:
                file.write(json.dumps({"setting": setting, "question": question, **asdict(answer)}) + "\n")
                self._answers[setting, question] = answer

    def _read(self) -> None:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # what comes next must begin a line of its own
            with self._path.open("r+b") as file:
                file.truncate(whole)
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                record = json.loads(line)
                answer = GivenAnswer(
                    str(record["text"]),
                    float(record["log_prob"]),
                    tuple(record["posterior"]),
                    record.get("no_answer"),
                )
                self._answers[str(record["setting"]), str(record["question"])] = answer
            except (ValueError, KeyError, TypeError) as error:
                raise SourceInvalid(source=f"{self._path}:{number}", reason=f"not an answer: {error!r}") from error


def digest_of(*parts: str) -> str:
    """Sixteen hex digits that name these texts in this order."""
    digest = hashlib.sha256()
    for part in parts:
        # a length before each: two ways to cut the same letters are two lists
        digest.update(f"{len(part)} {part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
