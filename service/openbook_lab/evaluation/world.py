"""How the encyclopedia's own questions are asked of its indexes: in this process, or of a running service."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from openbook.cli.client import Answering, ServiceHere, running_service
from openbook.cli.options import environment_name, option
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind
from openbook.errors import InvalidRequest, SettingInvalid
from openbook.settings import Settings
from openbook_client import calls
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.reports import ReportFiles, run_facts

DEFAULTS = AnswerOptions()
YEARS = tuple(DEMO_YEARS.values())


class HasQuestionText(Protocol):
    """A question."""

    @property
    def text(self) -> str: ...


Q = TypeVar("Q", bound=HasQuestionText)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldQuestions(ReportFiles):
    """How questions are asked, and of which service."""

    url: str | None = option(
        None, "Ask the service there, swapping its index where another is to be asked; else in this process."
    )
    token: str | None = option(
        None, f"Its admin token, for swaps; without it, that of {environment_name('admin_token')}."
    )
    style: tuple[str, ...] = option((), "Way of asking, such as plain; give it again for more. Default: all.")
    as_typed: bool = option(False, "Ask in lower case and without the question mark, as people type.")
    seed: int = option(0, "What is drawn follows from it.")
    n_docs: int = option(DEFAULTS.n_docs, "K: passages to retrieve and marginalise over.")
    model: ModelKind = option(DEFAULTS.model, "RAG-Token or RAG-Sequence.")
    num_beams: int = option(1, "Width of the beam search; 1 is greedy.")

    def ask(
        self, version: str, settings: Settings, questions: Sequence[Q], progress: ProgressBar
    ) -> tuple[str, list[tuple[Q, str]]]:
        """The name of the checkpoint that answers, and each question with its answer from this version."""
        checkpoint = ""
        given = []
        with self._service(version, settings) as service:
            for number, question in enumerate(questions, start=1):
                text = question.text.lower().rstrip("?") if self.as_typed else question.text
                answer = service.answer(text, index=version, **self._fields)
                checkpoint = answer.checkpoint
                given.append((question, str(answer.answer)))
                progress.update(number, len(questions), version)
        return checkpoint, given

    def facts(self, checkpoint: str, started: float) -> dict[str, Any]:
        ran = run_facts(started)
        return {
            "checkpoint": checkpoint,
            **self._fields,
            "as typed": self.as_typed,
            "asked": "in process" if self.url is None else f"over HTTP at {self.url}",
            "machine": ran["machine"],
            "seed": self.seed,
            "seconds": ran["seconds"],
        }

    @property
    def _fields(self) -> calls.CompareOptions:
        return {"n_docs": self.n_docs, "model": self.model, "num_beams": self.num_beams}

    @contextmanager
    def _service(self, version: str, settings: Settings) -> Iterator[Answering]:
        """A service that has `version` open. A running one that does not swaps, and swaps back at the end."""
        if self.url is None:
            with ServiceHere(settings.model_copy(update={"index": version})) as here:
                yield here
            return
        token = self.token
        if token is None and settings.admin_token is not None:
            token = settings.admin_token.get_secret_value()
        with running_service(self.url, timeout_s=settings.timeout_s, token=token) as service:
            open_now = service.index()
            if version in (one.version for one in open_now.resident):
                yield service
                return
            live = open_now.live
            if live is None:
                raise SettingInvalid(setting="--url", reason=f"the service at {self.url} has no live index")
            service.swap(version)
            try:
                yield service
            finally:
                service.swap(live.version)


def check_known(field: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise InvalidRequest for a name that is not known."""
    for one in given:
        if one not in known:
            raise InvalidRequest(field=field, reason=f"{one!r} is none of {', '.join(sorted(known))}")
