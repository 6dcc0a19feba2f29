"""How the encyclopedia's own questions are asked of its indexes: in this process, or of a running service."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from openbook.cli.client import Answering, ServiceHere, running_service
from openbook.cli.progress import ProgressBar
from openbook.errors import InvalidRequest, SettingInvalid
from openbook.settings import Settings
from openbook_client import calls
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reports import run_facts

YEARS = tuple(DEMO_YEARS.values())


class HasQuestionText(Protocol):
    """A question."""

    @property
    def text(self) -> str: ...


Q = TypeVar("Q", bound=HasQuestionText)


def ask_world(
    options: Options, version: str, settings: Settings, questions: Sequence[Q], progress: ProgressBar
) -> tuple[str, list[tuple[Q, str]]]:
    """The name of the checkpoint that answers, and each question with its answer from this version."""
    checkpoint = ""
    given = []
    with _service(options, version, settings) as service:
        for number, question in enumerate(questions, start=1):
            text = question.text.lower().rstrip("?") if options.as_typed else question.text
            answer = service.answer(text, index=version, **_fields(options))
            checkpoint = answer.checkpoint
            given.append((question, str(answer.answer)))
            progress.update(number, len(questions), version)
    return checkpoint, given


def world_facts(options: Options, checkpoint: str, started: float) -> dict[str, Any]:
    ran = run_facts(started)
    return {
        "checkpoint": checkpoint,
        **_fields(options),
        "as typed": options.as_typed,
        "asked": "in process" if options.url is None else f"over HTTP at {options.url}",
        "machine": ran["machine"],
        "seed": options.seed,
        "seconds": ran["seconds"],
    }


def _fields(options: Options) -> calls.CompareOptions:
    # an answer that is withheld could be neither right nor wrong
    return {"n_docs": options.n_docs, "model": options.one_model, "num_beams": options.num_beams, "abstain": "never"}


@contextmanager
def _service(options: Options, version: str, settings: Settings) -> Iterator[Answering]:
    """A service that has `version` open. A running one that does not swaps, and swaps back at the end."""
    if options.url is None:
        with ServiceHere(settings.model_copy(update={"index": version})) as here:
            yield here
        return
    token = options.token
    if token is None and settings.admin_token is not None:
        token = settings.admin_token.get_secret_value()
    with running_service(options.url, timeout_s=settings.timeout_s, token=token) as service:
        open_now = service.index()
        if version in (one.version for one in open_now.resident):
            yield service
            return
        live = open_now.live
        if live is None:
            raise SettingInvalid(setting="--url", reason=f"the service at {options.url} has no live index")
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
