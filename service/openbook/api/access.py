"""What the calls share: the services, the settings, and who may administer."""

from secrets import compare_digest
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from openbook.api.attempts import FailedAttempts
from openbook.api.composition import Services
from openbook.errors import AdminDisabled, InvalidRequest, Unauthorized
from openbook.settings import Settings

ACTOR = "x-openbook-actor"
MAX_ACTOR = 64

bearer = HTTPBearer(auto_error=False, description="The setting OPENBOOK_ADMIN_TOKEN.")


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def settings_of(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def admin(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
    """Let pass who holds the admin token. Raises AdminDisabled, Unauthorized, TooManyAttempts.

    Who sends no token has not guessed, and is not counted.
    """
    token = settings_of(request).admin_token
    if token is None or not token.get_secret_value():
        raise AdminDisabled
    if credentials is None:
        raise Unauthorized(what="missing")
    attempts: FailedAttempts = request.app.state.attempts
    address = _address(request)
    attempts.check(address)
    # headers come as latin-1; compare the bytes that were sent
    given = credentials.credentials.encode("latin-1")
    # bytes of the environment that are not UTF-8 came as surrogates, and go back to what they were
    if compare_digest(given, token.get_secret_value().encode("utf-8", "surrogateescape")):
        return
    attempts.fail(address)
    raise Unauthorized(what="wrong" if _is_utf8(given) else "not sent as UTF-8")


def actor(
    request: Request,
    named: Annotated[
        str | None,
        Header(alias=ACTOR, description="Who asks, for the history: at most 64 printable characters, in UTF-8."),
    ] = None,
) -> str:
    """Who asks for a swap: the header x-openbook-actor, else the address of the client.

    Raises InvalidRequest for a header that the history could not show: a name that came out as another one, or as an
    address, would be worse than none.
    """
    given = (named or "").encode("latin-1")
    if not _is_utf8(given):
        raise InvalidRequest(field=ACTOR, reason="is not sent as UTF-8")
    name = given.decode().strip()
    if len(name) > MAX_ACTOR:
        raise InvalidRequest(field=ACTOR, reason=f"must have at most {MAX_ACTOR} characters")
    if not name.isprintable():
        raise InvalidRequest(field=ACTOR, reason="holds a character that cannot be printed")
    return name or _address(request)


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _is_utf8(sent: bytes) -> bool:
    try:
        sent.decode()
    except UnicodeDecodeError:
        return False
    return True


TheServices = Annotated[Services, Depends(services_of)]
TheSettings = Annotated[Settings, Depends(settings_of)]
TheActor = Annotated[str, Depends(actor)]
