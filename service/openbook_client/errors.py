"""What a call may raise. Each error has a stable `code` for programs; its text is a sentence for people."""

from openbook_client.results import BrokenAnswer, Problem


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
    """The service answered with a problem document (RFC 9457): `problem`, which `code` tells from others.

    A code that programs do something else about has a child, which is raised in its place.
    """

    def __init__(self, problem: Problem, *, retry_after_s: float | None = None) -> None:
        self.problem, self.retry_after_s = problem, retry_after_s
        self.code, self.status, self.detail = problem.code, problem.status, problem.detail
        # what finds the line in the service's log
        self.request_id = problem.request_id
        # (field, reason) of each field at fault
        self.fields = tuple((one.field, one.reason) for one in problem.errors)
        super().__init__(problem.detail)


class Overloaded(Refused):
    """Every place in the queue is taken. `retry_after_s` says when to come again."""

    code = "overloaded"


class RateExceeded(Refused):
    """The key has asked too often. `retry_after_s` says when to come again."""

    code = "rate_exceeded"


class NotReady(Refused):
    """No index is live now, or the service is ending."""

    code = "not_ready"


class IndexNotResident(Refused):
    """The version is on disk and not open: `load` opens it."""

    code = "index_not_resident"


class GuardFailed(Refused):
    """`broken` has the first answers that break."""

    code = "guard_failed"

    @property
    def broken(self) -> tuple[BrokenAnswer, ...]:
        return self.problem.broken


def refused(problem: Problem, *, retry_after_s: float | None = None) -> Refused:
    """The error of a problem document."""
    kind = next((one for one in Refused.__subclasses__() if one.code == problem.code), Refused)
    return kind(problem, retry_after_s=retry_after_s)
