"""The tokens of a causal language model's prompt, piece by piece.

    shared | passage | question and opening | answer

Each piece has the tokens that it has within the whole. So what a model has read of a passage serves every question.
A tokenizer keeps the space before a word with the word: a space at a seam therefore belongs to the piece behind it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, InvalidRequest
from openbook.rag.prompt import PASSAGE, QUESTION, CausalPrompt, as_text, as_turns, passage_text
from openbook.rag.weights import first_line

# Room for a question of a few words and an answer of as many: less is no checkpoint to ask.
LEAST_ROOM = 64
LEAST_PASSAGE = 8
_MARKS = (PASSAGE, QUESTION)
# A question and a passage whose first or last character a tokenizer might join with what stands beside it.
_PROBES = ("who", "Who?", "1998", "(x)", "é", "'tis", "a b.", "end:", "—")


@dataclass(frozen=True, slots=True)
class CausalWording:
    """A tokenizer and the fixed words around passage, question and answer.

    `stops` end an answer: their first is the end that a hypothesis carries. `refusals` are answers, each with its end,
    that count as the empty one. Lengths are in tokens.
    """

    tokenizer: Any
    prompt: CausalPrompt
    shared: tuple[int, ...]
    stops: tuple[int, ...]
    refusals: tuple[tuple[int, ...], ...]
    longest_question: int
    longest_answer: int
    _pieces: tuple[str, str, str, str]
    _control: re.Pattern[str] | None

    @classmethod
    def of(
        cls, name: str, tokenizer: Any, prompt: CausalPrompt, *, ends: Sequence[int], positions: int | None
    ) -> "CausalWording":
        """`ends` are the model's own end-of-sequence tokens, `positions` the most tokens that it reads.

        Raises CheckpointInvalid, which names the checkpoint `name`, for a prompt that the tokenizer cannot cut into
        pieces, and for one that leaves no room.
        """
        pieces = _cut(name, _whole(name, tokenizer, prompt))
        wording = cls(
            tokenizer=tokenizer,
            prompt=prompt,
            shared=_opened(tokenizer, prompt, pieces[0]),
            stops=_stops(name, tokenizer, prompt, ends),
            refusals=(),
            longest_question=0,
            longest_answer=0,
            _pieces=pieces,
            _control=_control_tokens(tokenizer),
        )
        if not wording.shared:
            raise CheckpointInvalid(
                checkpoint=name, reason=f"its prompt has no token before {PASSAGE}: begin with words."
            )
        fixed = len(wording._piece("".join(wording._around(1)), 1)[0])
        if fixed + LEAST_PASSAGE > prompt.longest_passage:
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its longest_passage is {prompt.longest_passage} tokens; the prompt's own words behind a "
                f"passage take {fixed}, and a passage at least {LEAST_PASSAGE}.",
            )
        wording._check_seams(name)
        refusals = tuple(dict.fromkeys(wording._said(text) for text in prompt.refusals))
        if any(set(refusal[:-1]) & set(wording.stops) for refusal in refusals):
            raise CheckpointInvalid(checkpoint=name, reason="a refusal of its prompt holds what ends an answer.")
        # the model reads nothing behind its last position
        room = (positions or 1 << 20) - len(wording.shared) - prompt.longest_passage
        if room < LEAST_ROOM:
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its prompt takes {len(wording.shared)} tokens and a passage up to {prompt.longest_passage}; "
                f"of {positions} positions {max(room, 0)} are left for question and answer. Use fewer shots, or a "
                "smaller longest_passage.",
            )
        return replace(wording, refusals=refusals, longest_question=room // 2, longest_answer=room - room // 2)

    @property
    def eos(self) -> int:
        return self.stops[0]

    def passage(self, passage: Passage) -> tuple[int, ...]:
        """The passage and the fixed words behind it, the passage cut to `longest_passage` tokens in all."""
        text = self._plain(passage_text(passage.title, passage.text))
        limit = self.prompt.longest_passage
        while True:
            before, after = self._around(1)
            ids, ends = self._piece(f"{before}{text}{after}", 1)
            if len(ids) <= limit:
                return tuple(ids)
            # cut where the last token that fits ends; the words behind it are tokenised again
            behind = sum(end > len(before) + len(text) for end in ends)
            kept = limit - behind
            end = ends[kept - 1] - len(before) if 0 < kept <= len(ends) else 0
            if not 0 < end < len(text):
                end = len(text) - 1
            text = text[:end]

    def question(self, question: str) -> tuple[int, ...]:
        """The question and the opening of the answer. Raises InvalidRequest for one that is too long."""
        before, after = self._around(2)
        ids, _ = self._piece(f"{before}{self._plain(question.strip())}{after}", 2)
        if len(ids) > self.longest_question:
            raise InvalidRequest(
                field="question",
                reason=f"it takes {len(ids)} tokens, which leaves no room for a passage and an answer: this "
                f"checkpoint's generator reads {self.longest_question} of a question.",
            )
        return tuple(ids)

    def target(self, answer: str) -> tuple[int, ...]:
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

    def _said(self, answer: str) -> tuple[int, ...]:
        lead = self._pieces[3]
        text = self._plain(answer.strip())
        return (*(self._piece(f"{lead}{text}", 3)[0] if text else ()), self.eos)

    def _around(self, number: int) -> tuple[str, str]:
        before, _, after = self._pieces[number].partition(_MARKS[number - 1])
        return before, after

    def _piece(self, text: str, number: int) -> tuple[list[int], list[int]]:
        """The tokens of `text` as they are behind the piece before it, and where each ends in `text`."""
        # some tokenizers treat the beginning of a text in their own way: what stands before the seam goes first
        before = _last_character(self._pieces[number - 1])
        encoded = self.tokenizer(before + text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        both = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        kept = [(token, end - len(before)) for token, (_, end) in both if end > len(before)]
        return [token for token, _ in kept], [end for _, end in kept]

    def _plain(self, text: str) -> str:
        """The text with a space in each name of a control token: a passage cannot end its own turn."""
        return text if self._control is None else self._control.sub(r"\g<0> ", text)

    def _check_seams(self, name: str) -> None:
        """Raises CheckpointInvalid where pieces and whole have other tokens."""
        for probe in _PROBES:
            for question in _PROBES:
                passage = Passage("", "", f"{question} {probe}")
                before, after = self._around(2)
                parts = [
                    self.shared,
                    self.passage(passage),
                    tuple(self._piece(f"{before}{question}{after}", 2)[0]),
                    self._said(probe)[:-1],
                ]
                text = self._pieces[0]
                for number, word in ((1, passage.text), (2, question)):
                    around = self._around(number)
                    text += f"{around[0]}{word}{around[1]}"
                text += f"{self._pieces[3]}{probe}"
                whole = _opened(self.tokenizer, self.prompt, text)
                joined: tuple[int, ...] = ()
                for part, seam in zip(parts, (PASSAGE, PASSAGE, QUESTION, "the answer"), strict=True):
                    joined += part
                    if whole[: len(joined)] != joined:
                        raise CheckpointInvalid(
                            checkpoint=name,
                            reason=f"its tokenizer joins what stands before and behind a seam of the prompt, at "
                            f"{seam}. Write a space before {{passage}}, {{question}} and at the end of opening.",
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


def _cut(name: str, whole: str) -> tuple[str, str, str, str]:
    """The whole as its four pieces, the last of them what stands before an answer; a seam's space opens a piece."""
    if whole.count(PASSAGE) != 1 or whole.count(QUESTION) != 1:
        raise CheckpointInvalid(checkpoint=name, reason=f"its chat template does not keep {PASSAGE} and {QUESTION}.")
    shared, rest = whole.split(PASSAGE)
    between, after = rest.split(QUESTION)
    kept = [text[:-1] if text.endswith(" ") else text for text in (shared, between, after)]
    spaces = [" " if text.endswith(" ") else "" for text in (shared, between, after)]
    if not all(kept):
        raise CheckpointInvalid(
            checkpoint=name, reason=f"its prompt has no words before {PASSAGE}, before {QUESTION} or before the answer."
        )
    return kept[0], f"{spaces[0]}{PASSAGE}{kept[1]}", f"{spaces[1]}{QUESTION}{kept[2]}", spaces[2]


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


def _last_character(piece: str) -> str:
    return piece[-1:] if piece.strip() else ""


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _opened(tokenizer: Any, prompt: CausalPrompt, text: str) -> tuple[int, ...]:
    """The beginning of a prompt, with the token that opens every text where the tokenizer has one, and without one
    that ends it. A chat template writes the opening token itself."""
    bare = _ids(tokenizer, text)
    if prompt.chat:
        return tuple(bare)
    framed: list[int] = tokenizer(text, verbose=False)["input_ids"]
    extra = len(framed) - len(bare)
    opening = next((n for n in range(extra + 1) if framed[n : n + len(bare)] == bare), 0)
    return tuple(framed[: opening + len(bare)])
