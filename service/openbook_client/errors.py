"""What a call may raise. Each error has a stable `code` for programs; its text is a sentence for people."""

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
    """The service answered with a problem document (RFC 9457). The child with the document's code is raised.

    A code that this client does not know gives Refused itself, with the code.
    """

    known_code: ClassVar[str | None] = None

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

    known_code = "invalid_request"


class FilterInvalid(Refused):
    """It is no filter: `fields` says where, and why."""

    known_code = "filter_invalid"


class FilterFieldUnknown(Refused):
    """The passages of the version have no such field; the text lists those that they have."""

    known_code = "filter_field_unknown"


class FilterTypeWrong(Refused):
    """The text says of which type the field is."""

    known_code = "filter_type_wrong"


class FilterMatchesNothing(Refused):
    """No passage of the version passes the filter. Another version may have some."""

    known_code = "filter_matches_nothing"


class MalformedBody(Refused):
    known_code = "malformed_body"


class UnsupportedMediaType(Refused):
    known_code = "unsupported_media_type"


class BodyTooLarge(Refused):
    known_code = "body_too_large"


class BodyTooSlow(Refused):
    known_code = "body_too_slow"


class HeadTooLarge(Refused):
    known_code = "head_too_large"


class NotFound(Refused):
    """The service has no such call: it may be an older one."""

    known_code = "not_found"


class MethodNotAllowed(Refused):
    known_code = "method_not_allowed"


class HostRefused(Refused):
    """The service does not know the name that the URL has: OPENBOOK_ALLOWED_HOSTS."""

    known_code = "host_refused"


class OriginRefused(Refused):
    known_code = "origin_refused"


# --- what is asked for ---------------------------------------------------------------------------------------


class UnknownIndex(Refused):
    known_code = "unknown_index"


class IndexNotResident(Refused):
    """The version is on disk and not open: `load` opens it."""

    known_code = "index_not_resident"


class RetrieverUnavailable(Refused):
    known_code = "retriever_unavailable"


class NotCalibrated(Refused):
    known_code = "not_calibrated"


class ResponseTooLarge(Refused):
    """The response has more bytes than the service allows: ask for fewer passages, or for fewer questions at once."""

    known_code = "response_too_large"


class UnknownPassage(Refused):
    known_code = "unknown_passage"


# --- what readers say ----------------------------------------------------------------------------------------


class FeedbackDisabled(Refused):
    known_code = "feedback_disabled"


class UnknownAnswer(Refused):
    known_code = "unknown_answer"


class FeedbackNotKept(Refused):
    known_code = "feedback_not_kept"


# --- load ----------------------------------------------------------------------------------------------------


class Overloaded(Refused):
    """Every place in the queue is taken. `retry_after_s` says when to come again."""

    known_code = "overloaded"


class NotReady(Refused):
    """No index is live now, or the service is ending."""

    known_code = "not_ready"


class DeadlineExceeded(Refused):
    known_code = "deadline_exceeded"


# --- administration ------------------------------------------------------------------------------------------


class Unauthorized(Refused):
    known_code = "unauthorized"


class AdminDisabled(Refused):
    known_code = "admin_disabled"


class TooManyAttempts(Refused):
    known_code = "too_many_attempts"


class RateExceeded(Refused):
    """The key has asked too often. `retry_after_s` says when to come again."""

    known_code = "rate_exceeded"


class SwapInProgress(Refused):
    known_code = "swap_in_progress"


class NoPreviousIndex(Refused):
    known_code = "no_previous_index"


class DrainTimedOut(Refused):
    known_code = "drain_timed_out"


class GuardFailed(Refused):
    """`broken` has the first answers that break."""

    known_code = "guard_failed"


class GuardUnavailable(Refused):
    known_code = "guard_unavailable"


class IndexIncompatible(Refused):
    known_code = "index_incompatible"


class IndexCorrupt(Refused):
    known_code = "index_corrupt"


class IndexTooLarge(Refused):
    known_code = "index_too_large"


class IndexUnreachable(Refused):
    """The database that has the version's vectors does not answer."""

    known_code = "index_unreachable"


class GeneratorUnreachable(Refused):
    """The server that runs the language model does not answer: ask again."""

    known_code = "generator_unreachable"


class GeneratorFailed(Refused):
    """The server that runs the language model refused the request, or gave what cannot be read."""

    known_code = "generator_failed"


class GeneratorLacks(Refused):
    """The server that runs the language model cannot do this: ask for model sequence, and decoding fast."""

    known_code = "generator_lacks"


class StoreUnreachable(Refused):
    """The store of versions does not answer. What is live serves on."""

    known_code = "store_unreachable"


class InternalError(Refused):
    """The service has a bug. `request_id` finds it in the log."""

    known_code = "internal_error"
