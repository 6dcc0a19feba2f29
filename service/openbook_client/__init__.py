"""Asks an Openbook service: `Openbook(url).answer(question)`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openbook_client.client import AsyncOpenbook, Openbook
    from openbook_client.errors import OpenbookError, Refused, Silent, Unreachable, WrongUse
    from openbook_client.results import Answer, Comparison, Passage, Retrieval, RetrievedPassage, Scores, Token

__all__ = [
    "Answer",
    "AsyncOpenbook",
    "Comparison",
    "Openbook",
    "OpenbookError",
    "Passage",
    "Refused",
    "Retrieval",
    "RetrievedPassage",
    "Scores",
    "Silent",
    "Token",
    "Unreachable",
    "WrongUse",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of `__all__`, imported when it is asked for: a service needs the records, and no HTTP client."""
        for module in ("results", "errors", "client") if name in __all__ else ():
            found = getattr(import_module(f"openbook_client.{module}"), name, None)
            if found is not None:
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
