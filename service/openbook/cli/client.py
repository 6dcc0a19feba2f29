"""The service as the commands see it: running elsewhere and asked over HTTP, or loaded into this process."""

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

from pydantic import BaseModel, SecretStr, ValidationError

from openbook.errors import InvalidRequest, SettingInvalid
from openbook.settings import Settings
from openbook_client import Answer, Comparison, Openbook, WrongUse
from openbook_client.calls import AnswerOptions, CompareOptions

M = TypeVar("M", bound=BaseModel)


class Answering(Protocol):
    """A service that is asked: `Openbook` of the client, or ServiceHere."""

    def answer(self, question: str, **options: Unpack[AnswerOptions]) -> Answer: ...

    def compare(self, question: str, versions: Sequence[str], **options: Unpack[CompareOptions]) -> Comparison: ...


def running_service(
    url: str,
    *,
    timeout_s: float,
    token: str | None = None,
    actor: str | None = None,
    token_setting: str = "OPENBOOK_ADMIN_TOKEN",
) -> Openbook:
    """The service at `url`, which is asked once: what it refuses, the command says at once.

    Raises SettingInvalid for what no request can carry, before anything is sent.
    """
    with as_settings(url="--url", token=token_setting, actor="--actor"):
        return Openbook(url, token=token, actor=actor, timeout_s=timeout_s, retries=0)


def revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def reading_service(url: str, settings: Settings) -> Openbook:
    """As running_service, for a command that only asks."""
    key = revealed(settings.api_key)
    return running_service(url, timeout_s=settings.timeout_s, token=key, token_setting="OPENBOOK_API_KEY")


@contextmanager
def as_settings(**names: str) -> Iterator[None]:
    """Turn WrongUse of the client into SettingInvalid, under the name that the user knows the argument by."""
    try:
        yield
    except WrongUse as error:
        raise SettingInvalid(setting=names[error.argument], reason=error.reason) from error


class ServiceHere:
    """The service in this process, without HTTP: the same checks, use case and response. Use it in a `with` block.

    Entering loads the checkpoint, which takes seconds to minutes, and raises what the service raises at its start.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        # torch and transformers take seconds to import: only a command that computes pays for them
        with without_collecting():
            from openbook.api.composition import open_services
            from openbook.application.telemetry import Telemetry

        quieten_libraries()
        self._services = open_services(self._settings, Telemetry())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from openbook.api.composition import close_services

        self._runner.run(close_services(self._services))
        self._runner.close()

    @property
    def max_no_answer(self) -> float | None:
        """The service withholds an answer above this `no_answer`; None where the checkpoint is not calibrated."""
        return self._services.engine.facts.max_no_answer

    def answer(self, question: str, **options: Unpack[AnswerOptions]) -> Answer:
        from openbook.api.schemas import AnswerRequest

        request = _validated(AnswerRequest, {"question": question, **options})
        asked = request.ask(self._settings, self._services.engine)
        return Answer.model_validate(self._runner.run(self._services.answer_question.answer(asked)))

    def compare(self, question: str, versions: Sequence[str], **options: Unpack[CompareOptions]) -> Comparison:
        """Opens the versions that are not open yet."""
        from openbook.api.schemas import CompareRequest

        request = _validated(CompareRequest, {"question": question, "versions": list(versions), **options})
        asked = request.ask(self._settings, self._services.engine)
        for version in request.versions:
            if not self._services.live.resident(version):
                self._services.swap_index.load(version).result()
        comparison = self._runner.run(self._services.answer_question.compare(asked, request.versions))
        return Comparison.model_validate(comparison)

    def check(self, version: str, *, actor: str) -> None:
        """Ask the guarded questions of a version beside the live one. Raises GuardFailed, which the history keeps."""
        self._services.swap_index.check(version, actor=actor).result()


def _validated(model: type[M], body: Mapping[str, object]) -> M:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise InvalidRequest(field=field, reason=first["msg"]) from error


def url_of(settings: Settings) -> str:
    """Where a service with these settings is found from this machine."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = everywhere.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


@contextmanager
def without_collecting() -> Iterator[None]:
    """Import large libraries in a `with` block: without a collector of garbage it takes a sixth less.

    What they leave stays as long as the process. So the collector never looks at it later either.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if collects:
            gc.enable()


def quieten_libraries() -> None:
    """No progress bars and advice of transformers between our own lines."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
