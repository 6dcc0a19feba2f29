"""The service as the commands see it: running elsewhere and asked over HTTP, or loaded into this process."""

import asyncio
import ipaddress
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from openbook.errors import InvalidRequest, ServerRefused, ServerSilent, ServerUnreachable, SettingInvalid
from openbook.settings import Settings

# Beyond the time that the service itself allows a question; a swap of a large index takes minutes.
PATIENCE_S = 10.0
SWAP_TIMEOUT_S = 900.0

Body = dict[str, Any]
M = TypeVar("M", bound=BaseModel)


class RunningService:
    """A service at `url`. It sends `token` and `actor` as they are, in UTF-8.

    Raises ServerRefused with the service's own code and sentence, SettingInvalid for a `url` that is none,
    ServerSilent after a timeout, ServerUnreachable where nothing answers or something else does.
    """

    def __init__(self, url: str, *, timeout_s: float, token: str | None = None, actor: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers: dict[bytes, bytes] = {}
        if token:
            self._headers[b"authorization"] = f"Bearer {token}".encode(errors="surrogateescape")
        if actor:
            self._headers[b"x-openbook-actor"] = actor.encode(errors="surrogateescape")

    def answer(self, body: Body) -> Body:
        return self._call("POST", "/answer", body, timeout_s=self._timeout_s + PATIENCE_S)

    def compare(self, body: Body) -> Body:
        return self._call("POST", "/compare", body, timeout_s=self._timeout_s + PATIENCE_S)

    def change(self, what: str, body: Body) -> Body:
        """POST /index/swap, /index/load or /index/rollback: `what` is the last word."""
        return self._call("POST", f"/index/{what}", body, timeout_s=SWAP_TIMEOUT_S)

    def get(self, path: str) -> Body:
        return self._call("GET", path, timeout_s=PATIENCE_S)

    def _call(self, method: str, path: str, body: Body | None = None, *, timeout_s: float) -> Body:
        try:
            # a proxy of the environment is for the world outside, not for this machine
            with httpx.Client(timeout=timeout_s, trust_env=not _is_this_machine(self._url)) as client:
                response = client.request(method, self._url + path, json=body, headers=self._headers)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise SettingInvalid(setting="--url", reason=f"{error} (such as http://127.0.0.1:8000)") from error
        except httpx.TimeoutException as error:
            raise ServerSilent(url=self._url, timeout_s=timeout_s) from error
        except httpx.HTTPError as error:
            raise ServerUnreachable(url=self._url, reason=str(error) or type(error).__name__) from error
        return _content(response, self._url)


class ServiceHere:
    """The service in this process, without HTTP: the same checks, use case and response. Use it in a `with` block.

    Entering loads the checkpoint, which takes seconds to minutes, and raises what the service raises at its start.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        # torch and transformers take seconds to import: only a command that computes pays for them
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

    def answer(self, body: Body) -> Body:
        from openbook.api.responses import AnswerResponse
        from openbook.api.schemas import AnswerRequest

        request = _validated(AnswerRequest, body)
        answer = self._runner.run(
            self._services.answer_question.answer(
                request.question,
                request.options(self._settings, self._services.engine),
                timeout_s=request.timeout(self._settings),
                index=request.index,
            )
        )
        return AnswerResponse.model_validate(answer).model_dump(mode="json")

    def compare(self, body: Body) -> Body:
        """Opens the versions that are not open yet."""
        from openbook.api.responses import CompareResponse
        from openbook.api.schemas import CompareRequest

        request = _validated(CompareRequest, body)
        options = request.options(self._settings, self._services.engine)
        for version in request.versions:
            if not self._services.live.resident(version):
                self._services.swap_index.load(version).result()
        comparison = self._runner.run(
            self._services.answer_question.compare(
                request.question,
                options,
                request.versions,
                timeout_s=request.timeout(self._settings),
            )
        )
        return CompareResponse.model_validate(comparison).model_dump(mode="json")


Answering = RunningService | ServiceHere


def _validated(model: type[M], body: Body) -> M:
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


def check_token(token: str, setting: str) -> None:
    """Raise SettingInvalid for an admin token that no HTTP header carries unchanged. The error never repeats the token.

    Characters outside ASCII are sent as UTF-8; a lone surrogate stands for a byte of the environment and is sent as it.
    """
    if any(character < " " or character == "\x7f" for character in token):
        raise SettingInvalid(setting=setting, reason="holds a control character, which no HTTP header can carry")
    if token != token.strip(" "):
        raise SettingInvalid(setting=setting, reason="begins or ends with a space, which no HTTP header keeps")
    try:
        token.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise SettingInvalid(setting=setting, reason="holds half of a surrogate pair, which is no character") from error


def quieten_libraries() -> None:
    """No progress bars and advice of transformers between our own lines."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _content(response: httpx.Response, url: str) -> Body:
    try:
        content = response.json()
    except ValueError:
        content = None
    if isinstance(content, dict):
        if response.is_success:
            return content
        if isinstance(content.get("code"), str):
            raise ServerRefused(code=content["code"], detail=content.get("detail", ""))
    raise ServerUnreachable(url=url, reason=f"what answers there is something else (status {response.status_code})")


def _is_this_machine(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
