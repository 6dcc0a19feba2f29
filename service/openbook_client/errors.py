"""What a call may raise. Each error has a stable `code` for programs; its text is a sentence for people."""

import re
from typing import Any, ClassVar


class OpenbookError(Exception):
    """The root. `code` is that of the service's problem, or of the client's own failure."""

    code: str = "client_error"


class WrongUse(OpenbookError, ValueError):
    """An `argument` that no request can carry. Nothing was sent. The text never repeats a token."""

    code = "wrong_use"

    def __init__(self, argument: str, reason: str) -> None:
        self.argument, self.reason = argument, reason
        super().__init__(f"{argument}: {reason}")


class Unreachable(OpenbookError):
    """Nothing answers at `url`, or something else than Openbook does."""

    code = "server_unreachable"

    def __init__(self, url: str, reason: str) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"No Openbook answers at {url}: {reason}. Start it with: openbook serve")


class Silent(Unreachable):
    """The service took the call and has not answered in time. It may still be working on it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self.reason, self.timeout_s = url, "timeout", timeout_s
        OpenbookError.__init__(self, f"The Openbook at {url} has not answered within {timeout_s:g} s.")


class Refused(OpenbookError):
    """The service answered with a problem document (RFC 9457). The child that the document's code names is raised.

    A code that this client does not know gives Refused itself, with the code.
    """

    known_code: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        # UnknownIndex is what unknown_index raises
        cls.known_code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int = 0,
        title: str = "",
        request_id: str | None = None,
        fields: tuple[tuple[str, str], ...] = (),
        retry_after_s: float | None = None,
        broken: tuple[dict[str, Any], ...] = (),
    ) -> None:
        self.code, self.detail, self.status, self.title = code, detail, status, title
        # what finds the line in the service's log
        self.request_id = request_id
        # (field, reason) of each field at fault
        self.fields = fields
        self.retry_after_s = retry_after_s
        # of a guard that failed: question, broken, before and after of the first answers that break
        self.broken = broken
        super().__init__(detail)


def refused(problem: dict[str, Any], *, status: int, retry_after_s: float | None = None) -> Refused:
    """The error of a problem document."""
    code = str(problem["code"])
    kind = next((one for one in Refused.__subclasses__() if one.known_code == code), Refused)
    errors, broken = problem.get("errors"), problem.get("broken")
    return kind(
        code,
        str(problem.get("detail", "")),
        status=status,
        title=str(problem.get("title", "")),
        request_id=problem.get("request_id"),
        fields=tuple(
            (str(one.get("field")), str(one.get("reason")))
            for one in (errors if isinstance(errors, list) else ())
            if isinstance(one, dict)
        ),
        retry_after_s=retry_after_s,
        broken=tuple(one for one in (broken if isinstance(broken, list) else ()) if isinstance(one, dict)),
    )


# --- the request ---------------------------------------------------------------------------------------------


class InvalidRequest(Refused):
    """`fields` says which fields are wrong, and why."""


class FilterInvalid(Refused):
    """It is no filter: `fields` says where, and why."""


class FilterFieldUnknown(Refused):
    """The passages of the version have no such field; the text lists those that they have."""


class FilterTypeWrong(Refused):
    """The text says of which type the field is."""


class FilterMatchesNothing(Refused):
    """No passage of the version passes the filter. Another version may have some."""


class MalformedBody(Refused): ...


class UnsupportedMediaType(Refused): ...


class BodyTooLarge(Refused): ...


class BodyTooSlow(Refused): ...


class HeadTooLarge(Refused): ...


class NotFound(Refused):
    """The service has no such call: it may be an older one."""


class MethodNotAllowed(Refused): ...


class HostRefused(Refused):
    """The service does not know the name that the URL has: OPENBOOK_ALLOWED_HOSTS."""


class OriginRefused(Refused): ...


# --- what is asked for ---------------------------------------------------------------------------------------


class UnknownIndex(Refused): ...


class IndexNotResident(Refused):
    """The version is on disk and not open: `load` opens it."""


class RetrieverUnavailable(Refused): ...


class NotCalibrated(Refused): ...


class ResponseTooLarge(Refused):
    """The response has more bytes than the service allows: ask for fewer passages, or for fewer questions at once."""


class UnknownPassage(Refused): ...


# --- what readers say ----------------------------------------------------------------------------------------


class FeedbackDisabled(Refused): ...


class UnknownAnswer(Refused): ...


class FeedbackNotKept(Refused): ...


# --- load ----------------------------------------------------------------------------------------------------


class Overloaded(Refused):
    """Every place in the queue is taken. `retry_after_s` says when to come again."""


class NotReady(Refused):
    """No index is live now, or the service is ending."""


class DeadlineExceeded(Refused): ...


# --- administration ------------------------------------------------------------------------------------------


class Unauthorized(Refused): ...


class AdminDisabled(Refused): ...


class TooManyAttempts(Refused): ...


class RateExceeded(Refused):
    """The key has asked too often. `retry_after_s` says when to come again."""


class SwapInProgress(Refused): ...


class NoPreviousIndex(Refused): ...


class DrainTimedOut(Refused): ...


class GuardFailed(Refused):
    """`broken` has the first answers that break."""


class GuardUnavailable(Refused): ...


class IndexIncompatible(Refused): ...


class IndexCorrupt(Refused): ...


class IndexTooLarge(Refused): ...


class IndexUnreachable(Refused):
    """The database that has the version's vectors does not answer."""


class GeneratorUnreachable(Refused):
    """The server that runs the language model does not answer: ask again."""


class GeneratorFailed(Refused):
    """The server that runs the language model refused the request, or gave what cannot be read."""


class GeneratorLacks(Refused):
    """The server that runs the language model cannot do this: ask for model sequence, and decoding fast."""


class StoreUnreachable(Refused):
    """The store of versions does not answer. What is live serves on."""


class InternalError(Refused):
    """The service has a bug. `request_id` finds it in the log."""
