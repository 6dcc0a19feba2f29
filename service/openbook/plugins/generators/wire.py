"""What servers send: the log-probs of tokens, in the two shapes that are about, and events.

completions   {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{text: log_prob}], "text_offset": [...]}
chats, and    {"content": [{"token": "...", "bytes": [...], "logprob": -0.1, "top_logprobs": [{...}]}]}
llama.cpp
"""

import json
import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# How servers write the tokens that end a text; llama.cpp writes nothing at all.
_SPECIAL = re.compile(r"<\|[^|<>]+\|>|<｜[^｜<>]+｜>|</s>|<eos>|<end_of_turn>|<EOS_TOKEN>|\[EOS\]")


@dataclass(frozen=True, slots=True)
class SaidToken:
    """One token with log p of it and of any end in its place: the latter of what the server listed."""

    text: str
    log_prob: float
    end_log_prob: float
    is_end: bool


@dataclass(frozen=True, slots=True)
class AnswerEnds:
    """Which tokens end an answer: the model's own ends, and those that begin with one of `stops`."""

    stops: tuple[str, ...] = ()

    def read(self, log_probs: Any) -> list[SaidToken]:
        """The tokens of a choice; the first of a prompt has no log-prob, and gets 0.

        Raises ValueError for log-probs of no known shape, and where there are none.
        """
        try:
            found = self._of_content(log_probs) if "content" in log_probs else self._of_lists(log_probs)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError("it gave no log-probs that can be read") from error
        return found

    def before_stop(self, text: str) -> str | None:
        """What a token says before a stop within it; None where it holds none."""
        places = [text.find(stop) for stop in self.stops if stop in text]
        return text[: min(places)] if places else None

    def _of_content(self, log_probs: Mapping[str, Any]) -> list[SaidToken]:
        return [
            self._token(
                _text(one),
                one["logprob"] or 0.0,
                {_text(other): float(other["logprob"]) for other in one.get("top_logprobs") or ()},
            )
            for one in log_probs["content"] or ()
        ]

    def _of_lists(self, log_probs: Mapping[str, Any]) -> list[SaidToken]:
        texts = log_probs["tokens"]
        tops = log_probs.get("top_logprobs") or [None] * len(texts)
        both = zip(texts, log_probs["token_logprobs"], tops, strict=True)
        return [self._token(text, own or 0.0, top or {}) for text, own, top in both]

    def _token(self, text: str, log_prob: float, tops: Mapping[str, float]) -> SaidToken:
        is_end = self._is_end(text)
        listed = {**tops, text: float(log_prob)}
        ends = [one for name, one in listed.items() if self._is_end(name)]
        if ends:
            end = math.log(min(1.0, math.fsum(map(math.exp, ends)))) if max(ends) > -700 else max(ends)
        else:
            # what is not listed is no likelier than the least of what is, nor than what all of it leaves
            rest = max(1e-12, 1 - math.fsum(math.exp(one) for one in listed.values()))
            end = min(math.log(rest), *listed.values())
        return SaidToken(text, float(log_prob), end, is_end)

    def _is_end(self, text: str) -> bool:
        return not text or _SPECIAL.fullmatch(text) is not None or bool(self.stops and text.startswith(self.stops))


def _text(entry: Mapping[str, Any]) -> str:
    """A token's text; of a part of a character, whatever stands for it."""
    text, in_bytes = str(entry["token"]), entry.get("bytes")
    return text or ("\ufffd" if in_bytes else "")


@dataclass(slots=True)
class Saying:
    """A completion as far as it has come. `text` is all of it, `tokens` include the end that it came to."""

    tokens: list[SaidToken]
    text: str = ""
    model: str = ""
    n_read: int = 0
    stopped: bool = False

    def add(self, event: Mapping[str, Any], ends: AnswerEnds) -> bool:
        """Take an event in; False where the answer has ended. Raises ValueError for one of no known shape."""
        self.model = str(event.get("model") or self.model)
        usage = event.get("usage") or {}
        self.n_read = int(usage.get("prompt_tokens") or self.n_read)
        for choice in event.get("choices") or ():
            self.text += str(choice.get("text") or (choice.get("delta") or {}).get("content") or "")
            if choice.get("logprobs"):
                for token in ends.read(choice["logprobs"]):
                    # a token with a stop within it says the last words and the end at once
                    last = None if token.is_end else ends.before_stop(token.text)
                    # another thread may read the tokens at any time: none ever holds what is behind a stop
                    self.tokens.append(token if last is None else replace(token, text=last))
                    self.stopped = self.stopped or last is not None
                    if token.is_end or last is not None:
                        return False
            self.stopped = self.stopped or choice.get("finish_reason") == "stop"
        return True

    def said(self) -> "Said":
        """What was said. Raises ValueError for words without a log-prob."""
        if self.text.strip() and not self.tokens:
            raise ValueError("it gave no log-probs")
        words = tuple(one.text for one in self.tokens if not one.is_end)
        log_probs = [one.log_prob for one in self.tokens if not one.is_end]
        ended = bool(self.tokens and self.tokens[-1].is_end)
        if ended:
            log_probs.append(self.tokens[-1].end_log_prob)
        elif self.stopped:
            # it keeps the end to itself: that one was not likely or unlikely, but certain
            ended = True
            log_probs.append(0.0)
        joined = "".join(words)
        text = self.text[: len(joined)] if "\ufffd" in joined else joined
        first_end = self.tokens[0].end_log_prob if self.tokens else -math.inf
        return Said(words, tuple(log_probs), ended, text, first_end)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer under one passage: a log-prob for each of `words`, and one more for the end where it is `ended`.

    `empty_log_prob` is log p of the end in the place of the first word.
    """

    words: tuple[str, ...]
    log_probs: tuple[float, ...]
    ended: bool
    text: str
    empty_log_prob: float = -math.inf


def echoed(choice: Mapping[str, Any], prompt: str, answer: str, words: tuple[str, ...], ends: AnswerEnds) -> Said:
    """What a server that repeats `prompt` and `answer` says of the answer, and of the end behind it.

    The answer begins at the last boundary that prompt and whole have in common: a token that begins in the prompt and
    ends in the answer is the answer's. `words` are its tokens where the model said it: they count where a token is a
    part of a character. Raises ValueError where nothing is repeated.
    """
    tokens = ends.read(choice.get("logprobs"))
    # the one that was asked for behind the whole; some servers leave out one that ends a text
    left_out = "".join(one.text for one in tokens) == prompt + answer and choice.get("finish_reason") == "stop"
    repeated, end = (tokens, 0.0) if left_out or not tokens else (tokens[:-1], tokens[-1].end_log_prob)
    texts = tuple(one.text for one in repeated)
    first = len(texts) - len(words)
    if not words or texts[first:] != words:
        first, behind = len(texts), ""
        while first and len(behind) < len(answer):
            first -= 1
            behind = texts[first] + behind
        if not behind.endswith(answer):
            raise ValueError("it does not repeat the prompt")
    if first <= 0:
        raise ValueError("it does not repeat the prompt")
    own, words = repeated[first:], texts[first:]
    return Said(words, (*(one.log_prob for one in own), end), ended=True, text=answer)


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[Mapping[str, Any]]:
    """The events of a stream. Raises ValueError for one that is no JSON object, or an error; ConnectionError for a
    stream that ends without saying so."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json.loads(data)
        if not isinstance(event, dict):
            raise ValueError("it sent no event")
        if event.get("error"):
            raise ValueError(f"it broke off: {message_of(event)}")
        yield event
    raise ConnectionError


def message_of(body: Any) -> str:
    """What a server says of an error, at most a line of it."""
    error = body.get("error", body.get("message", body.get("detail", ""))) if isinstance(body, dict) else body
    text = error.get("message", "") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:200]


def names_of(models: Sequence[Mapping[str, Any]]) -> str:
    """Names of models for a person, not all of very many."""
    names = [str(one.get("id")) for one in models[:10]]
    return ", ".join(names) + (" ..." if len(models) > 10 else "")
