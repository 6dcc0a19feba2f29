"""The frame of what a generator reads and says, as token ids: the same in training as in serving."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

TITLE_SEPARATOR = " / "
QUESTION_SEPARATOR = " // "


@dataclass(frozen=True, slots=True)
class Wording:
    """A generator's tokenizer and the tokens that frame what it reads and says.

    `prefix` is what the decoder reads before its first choice: its start token, and the one that is forced after it,
    where one is. A forced token is no choice of the model and costs no probability. A tokenizer's own opening token
    that the prefix does not hold (BART's <s>) belongs to the answer. Lengths are in tokens, and None where positions
    are relative (T5).
    """

    tokenizer: Any
    prefix: tuple[int, ...]
    eos: int
    pad: int
    title_sep: str = TITLE_SEPARATOR
    doc_sep: str = QUESTION_SEPARATOR
    longest_input: int | None = None
    longest_answer: int | None = None

    @classmethod
    def of(
        cls,
        generator: Any,
        tokenizer: Any,
        *,
        title_sep: str = TITLE_SEPARATOR,
        doc_sep: str = QUESTION_SEPARATOR,
    ) -> "Wording":
        config = generator.config
        start = config.decoder_start_token_id
        forced = getattr(config, "forced_bos_token_id", None)
        if forced is None:
            forced = getattr(generator.generation_config, "forced_bos_token_id", None)
        prefix = (start,) if forced is None or forced == start else (start, forced)
        eos = config.eos_token_id
        positions: int | None = getattr(config, "max_position_embeddings", None)
        return cls(
            tokenizer=tokenizer,
            prefix=prefix,
            eos=eos[0] if isinstance(eos, list) else eos,
            pad=config.pad_token_id,
            title_sep=title_sep,
            doc_sep=doc_sep,
            longest_input=positions,
            longest_answer=None if positions is None else positions + 1 - len(prefix),
        )

    def without_passages(self) -> "Wording":
        """The same for a closed book: a question with no title, no passage and nothing to join them."""
        return replace(self, title_sep="", doc_sep="")

    def opening(self, title: str, text: str) -> str:
        """The input as far as the passage's `text`."""
        # DPR's table writes titles in quotation marks
        bare = title.removeprefix('"').removesuffix('"')
        return _single(f"{bare}{self.title_sep}{text}")

    def input_text(self, title: str, text: str, question: str) -> str:
        """title / text // question, as the paper's own code joins them."""
        return self.opening(title, f"{text}{self.doc_sep}{question}")

    def cut(self, input_text: str, question: str, offsets: Sequence[tuple[int, int]], limit: int) -> tuple[int, int]:
        """Which tokens of `input_text` to drop so that `limit` are left: those from the first number to the second.

        The passage loses its end, the question nothing: transformers cuts from the right, where the question stands.
        The first number is not positive where the question alone is too long. `offsets` (L, 2) are the tokens'
        character ranges.
        """
        excess = len(offsets) - limit
        if excess <= 0:
            return len(offsets), len(offsets)
        question_start = len(input_text) - len(_single(f"{self.doc_sep}{question}"))
        # by position and not token by token: a byte pair may stand for no character at all
        boundary = next(i for i, (_, end) in enumerate(offsets) if end > question_start)
        return boundary - excess, boundary

    def targets(self, answers: Sequence[str], longest: int | None = None) -> list[list[int]]:
        """What the generator is to say for each answer after the prefix, its end included: the labels of training.

        With `longest` an answer is cut to that many tokens, or to the generator's positions where they are fewer.
        """
        limit = longest if longest is None or self.longest_answer is None else min(longest, self.longest_answer)
        targets = []
        for ids in self.tokenizer(list(answers), verbose=False)["input_ids"] if answers else []:
            opened = ids[1:] if ids[:1] == [self.prefix[-1]] else ids
            said = opened[:-1] if opened[-1:] == [self.eos] else opened
            targets.append([*said[: None if limit is None else limit - 1], self.eos])
        return targets


def _single(text: str) -> str:
    """One space for two, as transformers' retriever writes."""
    return text.replace("  ", " ")
