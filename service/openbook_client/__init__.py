"""Asks an Openbook service: `Openbook(url).answer(question)`."""

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
