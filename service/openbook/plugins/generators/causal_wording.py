"""The tokens of a causal language model's prompt and of its answers.

A prompt is tokenised as one text. An answer's tokens must be the same behind every prompt: a tokenizer keeps the space
before a word with the word, so a space at the end of the prompt belongs to the answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, InvalidRequest
from openbook.plugins.generators.prompt import PASSAGE, QUESTION, CausalPrompt, as_text, as_turns, filled, passage_text
from openbook.rag.weights import first_line

# Room for a question of a few words and an answer of as many: less is no checkpoint to ask.
LEAST_ROOM = 64
LEAST_PASSAGE = 8
# Tokens by which the parts of a prompt may be more together than alone.
SEAMS = 4
# A question and an answer whose first or last character a tokenizer might join with what stands beside it.
_PROBES = ("who", "Who?", "1998", "(x)", "é", "'tis", "a b.", "end:", "—")

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CausalWording:
    """A tokenizer and the fixed words around passage, question and answer.

    `shared` is what prompts begin with. `stops` end an answer: their first is the end that a hypothesis carries.
    `refusals` are answers, each with its end, that count as the empty one. Lengths are in tokens.
    """

    tokenizer: Any
    prompt: CausalPrompt
    stops: Tokens
    shared: Tokens
    refusals: tuple[Tokens, ...]
    longest_question: int
    longest_answer: int
    _whole: str
    _lead: str
    _control: re.Pattern[str] | None

    @classmethod
    def of(
        cls, name: str, tokenizer: Any, prompt: CausalPrompt, *, ends: int | Sequence[int] | None, positions: int | None
    ) -> "CausalWording":
        """`ends` are the model's own end-of-sequence tokens, `positions` the most tokens that it reads.

        Raises CheckpointInvalid, which names the checkpoint `name`, for a prompt that leaves no room, and for one whose
        end the tokenizer joins with an answer.
        """
        whole = _whole(name, tokenizer, prompt)
        if whole.count(PASSAGE) != 1 or whole.count(QUESTION) != 1:
            reason = f"its chat template does not keep {PASSAGE} and {QUESTION}."
            raise CheckpointInvalid(checkpoint=name, reason=reason)
        kept = whole.rstrip(" ")
        wording = cls(
            tokenizer=tokenizer,
            prompt=prompt,
            stops=_stops(name, tokenizer, prompt, [ends] if isinstance(ends, int) else list(ends or ())),
            shared=(),
            refusals=(),
            longest_question=0,
            longest_answer=0,
            _whole=kept,
            _lead=whole[len(kept) :],
            _control=_control_tokens(tokenizer),
        )
        before = wording._opened(kept.partition(PASSAGE)[0].rstrip(" "))
        shared = _common(before, *(wording._opened(filled(wording._whole, passage, "x")) for passage in _PROBES))
        fixed = wording._n_behind()
        if fixed + LEAST_PASSAGE > prompt.longest_passage:
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its longest_passage is {prompt.longest_passage} tokens; the prompt's own words behind a "
                f"passage take {fixed}, and a passage at least {LEAST_PASSAGE}.",
            )
        wording._check_seam(name)
        refusals = tuple(dict.fromkeys(wording._said(text) for text in prompt.refusals))
        if any(set(refusal[:-1]) & set(wording.stops) for refusal in refusals):
            raise CheckpointInvalid(checkpoint=name, reason="a refusal of its prompt holds what ends an answer.")
        # the model reads nothing behind its last position
        room = (positions or 1 << 20) - len(shared) - prompt.longest_passage - SEAMS
        if room < LEAST_ROOM:
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its prompt takes {len(shared)} tokens and a passage up to {prompt.longest_passage}; "
                f"of {positions} positions {max(room, 0)} are left for question and answer. Use fewer shots, or a "
                "smaller longest_passage.",
            )
        return replace(
            wording, shared=shared, refusals=refusals, longest_question=room // 2, longest_answer=room - room // 2
        )

    @property
    def eos(self) -> int:
        return self.stops[0]

    def row(self, passage: Passage, question: str) -> Tokens:
        """The prompt of a passage and a question; with the words behind it, the passage is cut to `longest_passage`.

        Raises InvalidRequest for a question that is too long.
        """
        asked = self._plain(question.strip())
        n_asked = len(_ids(self.tokenizer, asked))
        if n_asked > self.longest_question:
            raise InvalidRequest(
                field="question",
                reason=f"it takes {n_asked} tokens, which leaves no room for a passage and an answer: this "
                f"checkpoint's generator reads {self.longest_question} of a question.",
            )
        text = self._plain(passage_text(passage.heading, passage.text))
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        most = self.prompt.longest_passage - self._n_behind()
        if len(encoded["input_ids"]) > most:
            text = text[: encoded["offset_mapping"][most - 1][1]]
        return self._opened(filled(self._whole, text, asked))

    def target(self, answer: str) -> Tokens:
        """The tokens of an answer, with the end token. A refusal is the end token alone.

        Raises InvalidRequest for one that holds a token that ends an answer.
        """
        ids = self._said(answer)
        if ids in self.refusals:
            return (self.eos,)
        if set(ids[:-1]) & set(self.stops):
            raise InvalidRequest(
                field="targets", reason=f"{answer!r} holds what ends an answer of this checkpoint's generator."
            )
        return ids

    def _said(self, answer: str) -> Tokens:
        text = self._plain(answer.strip())
        if not text:
            return (self.eos,)
        # some tokenizers treat the beginning of a text in their own way: the prompt's last character goes first
        before = self._whole[-1:]
        encoded = self.tokenizer(
            f"{before}{self._lead}{text}", add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        both = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return (*(token for token, (_, end) in both if end > len(before)), self.eos)

    def _n_behind(self) -> int:
        """The tokens of the prompt's own words behind a passage."""
        return len(_ids(self.tokenizer, self._whole.partition(PASSAGE)[2].replace(QUESTION, "")))

    def _plain(self, text: str) -> str:
        """The text with a space in each name of a control token: a passage cannot end its own turn."""
        return text if self._control is None else self._control.sub(r"\g<0> ", text)

    def _opened(self, text: str) -> Tokens:
        """The tokens of a prompt, with the token that opens every text where the tokenizer has one, and without one
        that ends it. A chat template writes the opening token itself."""
        bare = _ids(self.tokenizer, text)
        if self.prompt.chat:
            return tuple(bare)
        framed: list[int] = self.tokenizer(text, verbose=False)["input_ids"]
        extra = len(framed) - len(bare)
        opening = next((n for n in range(extra + 1) if framed[n : n + len(bare)] == bare), 0)
        return tuple(framed[: opening + len(bare)])

    def _check_seam(self, name: str) -> None:
        """Raises CheckpointInvalid where prompt and answer have other tokens together than alone."""
        for probe in _PROBES:
            prompt = filled(self._whole, probe, probe)
            if self._opened(prompt) + self._said(probe)[:-1] != self._opened(f"{prompt}{self._lead}{probe}"):
                raise CheckpointInvalid(
                    checkpoint=name,
                    reason="its tokenizer joins the end of the prompt with an answer. Write a space at the end of "
                    "opening.",
                )


def _whole(name: str, tokenizer: Any, prompt: CausalPrompt) -> str:
    """The prompt in full, with the marks of passage and question in their places."""
    if not prompt.chat:
        return as_text(prompt)
    if tokenizer.chat_template is None:
        raise CheckpointInvalid(checkpoint=name, reason="its prompt is a chat, and its tokenizer has no chat template.")
    turns = as_turns(prompt)
    try:
        try:
            text = _render(tokenizer, turns)
        except Exception:
            # Gemma and others know no role of this name: the first question opens with the system's words
            if not prompt.system:
                raise
            first, second, *rest = turns
            opened = {"role": "user", "content": f"{first['content']}\n\n{second['content']}"}
            text = _render(tokenizer, [opened, *rest])
    except Exception as error:  # a template is a program of its own, and raises anything
        raise CheckpointInvalid(checkpoint=name, reason=f"its chat template: {first_line(error)}") from error
    return text + prompt.opening


def _render(tokenizer: Any, turns: list[dict[str, str]]) -> str:
    # a model that thinks aloud first has no place for a short answer: where its template has the switch, it is off
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=False))


def _stops(name: str, tokenizer: Any, prompt: CausalPrompt, ends: Sequence[int]) -> tuple[int, ...]:
    """The tokens that end an answer: the model's own first, then all that begin with a stop of the prompt."""
    own = [tokenizer.eos_token_id] if tokenizer.eos_token_id in ends or not ends else []
    stops = dict.fromkeys([*own, *ends])
    if prompt.stops:
        texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
        begun = [token for token, text in enumerate(texts) if text.startswith(prompt.stops)]
        for stop in prompt.stops:
            if not any(texts[token].startswith(stop) for token in begun):
                raise CheckpointInvalid(checkpoint=name, reason=f"no token of its tokenizer begins with {stop!r}.")
        stops |= dict.fromkeys(begun)
    found = tuple(token for token in stops if token is not None)
    if not found:
        raise CheckpointInvalid(checkpoint=name, reason="nothing ends its answers: give stops in its prompt.")
    return found


def _control_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """Finds the first character of every text that the tokenizer makes one token of outside its usual way.

    Chat templates write tokens that have no role of their own, such as <|start_header_id|>: all added tokens count. One
    that may be written in other letters is found in any.
    """
    added = {token.content for token in tokenizer.added_tokens_decoder.values()}
    # a run of spaces, which some tokenizers add, says nothing
    names = sorted(name for name in added | set(tokenizer.all_special_tokens) if len(name.strip()) > 1)
    if not names:
        return None
    first, whole = ("|".join(sorted({re.escape(text) for text in texts})) for texts in ((n[0] for n in names), names))
    # names may overlap, so they are only looked at; the many that some tokenizers have, where one may begin
    return re.compile(f"(?={first})(?={whole}).", re.IGNORECASE | re.DOTALL)


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _common(first: Tokens, *others: Tokens) -> Tokens:
    """What all begin with."""
    together = zip(first, *others, strict=False)
    return first[: next((n for n, some in enumerate(together) if len(set(some)) > 1), len(first))]
