"""How a generator is spoken to: what it reads and says as token ids, the same in training as in serving."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedModel

TITLE_SEPARATOR = " / "
QUESTION_SEPARATOR = " // "


@dataclass(frozen=True, slots=True)
class Wording:
    """A generator's tokenizer and the tokens that frame what it reads and says.

    `prefix` is what the decoder has read before its first choice: its start token, and the one that is forced after
    it, where one is. A tokenizer's own opening token that the prefix does not hold (BART's <s>) belongs to the answer.
    Lengths are None where positions are relative (T5).
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
        generator: PreTrainedModel,
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
        """The same for a closed book, which reads a question with no title, no passage and nothing to join them."""
        return replace(self, title_sep="", doc_sep="")

    def head(self, title: str) -> str:
        """What stands before the passage's text."""
        # DPR's table writes titles in quotation marks
        bare = title.removeprefix('"').removesuffix('"')
        return f"{bare}{self.title_sep}"

    def tail(self, question: str) -> str:
        """What stands behind it."""
        return f"{self.doc_sep}{question}"

    def targets(self, answers: Sequence[str], longest: int) -> list[list[int]]:
        """What the generator is to say for each answer, its end included, cut to `longest` tokens."""
        limit = longest if self.longest_answer is None else min(longest, self.longest_answer)
        targets = []
        for ids in self.tokenizer(list(answers), verbose=False)["input_ids"] if answers else []:
            opened = ids[1:] if ids[:1] == [self.prefix[-1]] else ids
            said = opened[:-1] if opened[-1:] == [self.eos] else opened
            targets.append([*said[: limit - 1], self.eos])
        return targets
