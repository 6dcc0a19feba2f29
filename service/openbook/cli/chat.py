"""openbook ask --chat: one question after another, each asked with the turns before it."""

from collections.abc import Iterator
from typing import Any

from openbook.cli.client import Answering
from openbook.cli.consoles import messages, output, say
from openbook.cli.rendering import show_turn
from openbook.errors import OpenbookError
from openbook_client import OpenbookError as ClientsError
from openbook_client.calls import EarlierTurn

# What a service takes: the turns, and the characters of each answer.
MOST_TURNS = 20
LONGEST_ANSWER = 4_000


def chat(service: Answering, first: str | None, options: dict[str, Any]) -> None:
    """Ask `first` and then what is typed, until an empty line or the end. A question that is refused ends nothing."""
    turns: list[EarlierTurn] = []
    for question in _questions(first):
        try:
            answer = service.answer(question, **options, history=turns)
        except (OpenbookError, ClientsError) as error:
            say(f"error [{error.code}]: {error}", "red")
            continue
        show_turn(answer.body(), output())
        said = None if answer.answer is None else answer.answer[:LONGEST_ANSWER]
        asked = answer.understood_as or question
        turns = [*turns, EarlierTurn(question=asked, answer=said)][-MOST_TURNS:]


def _questions(first: str | None) -> Iterator[str]:
    if first is not None:
        yield first
    try:
        while question := messages().input("> ").strip():
            yield question
    except EOFError:
        return
