"""openbook ask --file: the questions of a file, each with its answer in another."""

import asyncio
import fcntl
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from openbook.cli.consoles import printable
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook.storage.durable import append_line, open_regular, sync_folder
from openbook_client import AsyncOpenbook, Refused, Silent
from openbook_client.calls import AnswerOptions

# A service that is busy, or that restarts, is waited for: the file may take hours.
RETRIES = 8
ASK = "ask"


class QuestionLine(BaseModel):
    """A line of the file of questions. Other fields are not read."""

    model_config = ConfigDict(frozen=True)

    question: str
    # comes back in the answer
    id: str | int | None = None


class AnswerLine(BaseModel):
    """A line of the file of answers: `response` is the body of POST /answer.

    `line` says where the question stands in its file, from 1; `options` are what all were asked with.
    """

    model_config = ConfigDict(frozen=True)

    line: int
    id: str | int | None = None
    question: str
    options: Mapping[str, Any]
    response: Mapping[str, Any]


# by their lines in the file
Questions = Mapping[int, QuestionLine]
Asked = tuple[int, QuestionLine]
Failed = dict[int, Refused | Silent]
Reply = Mapping[str, Any] | Refused | Silent


class AnswerFile:
    """The answers so far, for one process at a time. Use it in a `with` block.

    Each answer is on the disk when `add` returns. A line that a process left half written is cut off.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._path, self._options = path, dict(options)
        self.answered: dict[int, str] = {}
        self.withheld = 0

    def __enter__(self) -> Self:
        """Raises SettingInvalid where another process writes the file, or where it holds something else."""
        self._descriptor = open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            self._lock()
            sync_folder(self._path.parent)
            self._cut_half_a_line()
            for record in self._records():
                self._keep(record)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def check(self, questions: Questions) -> None:
        """Raise SettingInvalid where the line that an answer names holds another question."""
        for line, question in self.answered.items():
            if line not in questions or questions[line].question != question:
                raise self._refused(f"holds the answer to another question than line {line} of --file")

    def add(self, asked: Asked, response: Mapping[str, Any]) -> None:
        line, question = asked
        named = question.model_dump(exclude_unset=True)
        record = AnswerLine(line=line, options=self._options, **named, response=response)
        self._keep(record)
        append_line(self._descriptor, record.model_dump_json(exclude_unset=True).encode())

    def _keep(self, record: AnswerLine) -> None:
        self.answered[record.line] = record.question
        self.withheld += bool(record.response.get("abstained"))

    def _records(self) -> Iterator[AnswerLine]:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    record = AnswerLine.model_validate_json(line)
                except ValidationError as error:
                    raise self._refused(f"line {number} is no answer of this command; name another file") from error
                if record.options != self._options:
                    raise self._refused(f"was written with other options (line {number}); name another file")
                yield record

    def _cut_half_a_line(self) -> None:
        with self._path.open("rb") as file:
            os.ftruncate(self._descriptor, sum(len(line) for line in file if line.endswith(b"\n")))

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._refused("another process is writing it") from error

    def _refused(self, reason: str) -> SettingInvalid:
        return SettingInvalid(setting=f"--out {self._path}", reason=reason)


@dataclass(frozen=True, slots=True)
class AskingAll:
    """How the questions of a file are asked: of the service at `url`, `at_once` of them at a time."""

    url: str
    timeout_s: float
    at_once: int
    options: AnswerOptions
    token: str | None = None

    def ask(self, questions: Questions, answers: AnswerFile) -> Failed:
        """Ask what has no answer yet, in the order of the file, and show how far it is. Returns what has none still."""
        left = [one for one in questions.items() if one[0] not in answers.answered]
        failed: Failed = {}
        with ProgressBar(stopped="Each answer so far is kept; the same command goes on.") as bar:

            def show() -> None:
                bar.update(len(answers.answered) + len(failed), len(questions), ASK)

            show()
            asyncio.run(self._ask(left, answers, failed, show))
        return failed

    async def _ask(
        self, questions: Sequence[Asked], answers: AnswerFile, failed: Failed, show: Callable[[], None]
    ) -> None:
        room = asyncio.Semaphore(self.at_once)
        async with AsyncOpenbook(self.url, token=self.token, timeout_s=self.timeout_s, retries=RETRIES) as service:

            async def ask(question: str) -> Reply:
                async with room:
                    try:
                        return (await service.answer(question, **self.options)).body()
                    except (Refused, Silent) as error:
                        return error

            async def keep_first() -> None:
                one, task = asked[0]
                reply = await task
                if isinstance(reply, Refused | Silent):
                    failed[one[0]] = reply
                else:
                    answers.add(one, reply)
                asked.popleft()
                show()

            # one that takes long holds back what is written behind it, but not what is asked
            asked: deque[tuple[Asked, asyncio.Task[Reply]]] = deque()
            try:
                for one in questions:
                    asked.append((one, asyncio.create_task(ask(one[1].question))))
                    if len(asked) >= 2 * self.at_once:
                        await keep_first()
                while asked:
                    await keep_first()
            finally:
                for _, task in asked:
                    task.cancel()
                await asyncio.gather(*(task for _, task in asked), return_exceptions=True)


def summary(answers: AnswerFile, failed: Failed) -> str:
    """How it ended: a sentence, and one for each code of an error."""
    n_answered = len(answers.answered)
    said = f"{n_answered - answers.withheld:,} of {n_answered + len(failed):,} questions have an answer"
    said += f'; "I do not know": {answers.withheld:,}' if answers.withheld else ""
    if not failed:
        return said
    codes = Counter(error.code for error in failed.values()).most_common()
    said += f"; errors: {', '.join(f'{code}: {count:,}' for code, count in codes)}. The same command asks these again."
    for code, _ in codes:
        line, error = next(one for one in failed.items() if one[1].code == code)
        said += f"\nline {line} [{code}]: {printable(str(error))}"
    return said
