"""Answers, one JSON line each as soon as they are known: a run that was killed continues from them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openbook.errors import SourceInvalid

if TYPE_CHECKING:
    from openbook.rag.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer with its log p, the posterior over its passages, and the seconds that it took, where measured."""

    text: str
    log_prob: float
    posterior: tuple[float, ...]
    seconds: float | None = None


class AnswerLog:
    """The answers of one checkpoint, by setting and by the key of what was asked."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one, and cut off a last line that is not whole.

        Raises SourceInvalid for any other line that is not an answer.
        """
        self._path = path
        self._answers: dict[tuple[str, str], GivenAnswer] = {}
        if path.is_file():
            self._read()

    @classmethod
    def of(cls, work: Path, checkpoint: "Checkpoint", kind: str = "") -> "AnswerLog":
        """The log of a checkpoint in `work`; each precision and each `kind` has its own."""
        precision = "int8" if checkpoint.int8 else str(checkpoint.generator.dtype).removeprefix("torch.")
        return cls(work / f"answers-{checkpoint.fingerprint}-{precision}{kind and f'-{kind}'}.jsonl")

    def get(self, setting: str, key: str) -> GivenAnswer | None:
        """The answer that was written under this setting; None: not asked yet."""
        return self._answers.get((setting, key))

    def add(self, setting: str, answers: Iterable[tuple[str, GivenAnswer]]) -> None:
        """Write the answers, each with its key."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for key, answer in answers:
                file.write(json.dumps({"setting": setting, "question": key, **asdict(answer)}) + "\n")
                self._answers[setting, key] = answer

    def get_or_ask(
        self, setting: str, keys: Sequence[str], ask: Callable[[], Sequence[GivenAnswer]]
    ) -> Sequence[GivenAnswer]:
        """The answers under these keys; where one is missing, `ask` gives them all and they are written."""
        known = [answer for key in keys if (answer := self.get(setting, key)) is not None]
        if len(known) == len(keys):
            return known
        given = ask()
        self.add(setting, zip(keys, given, strict=True))
        return given

    def _read(self) -> None:
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # the next answer must begin a line of its own
            with self._path.open("r+b") as file:
                file.truncate(whole)
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                record = json.loads(line)
                answer = GivenAnswer(
                    str(record["text"]), float(record["log_prob"]), tuple(record["posterior"]), record.get("seconds")
                )
                self._answers[str(record["setting"]), str(record["question"])] = answer
            except (ValueError, KeyError, TypeError) as error:
                raise SourceInvalid(source=f"{self._path}:{number}", reason=f"not an answer: {error!r}") from error


def digest_of(*parts: str) -> str:
    """Sixteen hex digits that name these texts in this order."""
    digest = hashlib.sha256()
    for part in parts:
        # the length keeps ("ab", "c") apart from ("a", "bc")
        digest.update(f"{len(part)} {part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
