"""What a server is sent of a prompt, and what counts as its refusal."""

import math
import re
from collections.abc import Sequence

from openbook.entities import Passage
from openbook.plugins.generators.prompt import CausalPrompt, as_text, as_turns, filled, passage_text
from openbook.plugins.generators.server import ModelServer, RowPrompt

# The end, as answers name it; the server's own has a name that is not always told.
END, END_ID = "</s>", 0
# Characters of a token, of which most have more: a passage that is cut keeps more tokens than its prompt allows.
CHARACTERS = 4
# The first character of what a chat template or a tokenizer may take for a token of its own.
_CONTROL = re.compile(r"<(?=[|｜/!\w])|\[(?=/?[A-Z_]+\])")


class ServedWording:
    """The words around passages and a question, as one text or as the turns of a chat."""

    def __init__(self, prompt: CausalPrompt) -> None:
        self.prompt = prompt
        whole = "" if prompt.chat else as_text(prompt)
        # a tokenizer keeps the space before a word with the word: it belongs to the answer
        self._whole = whole.rstrip(" ")
        self.lead = whole[len(self._whole) :]

    def of(self, question: str, passages: Sequence[Passage]) -> RowPrompt:
        """A prompt with these passages, one below the other."""
        longest = CHARACTERS * self.prompt.longest_passage
        text = "\n\n".join(plain(passage_text(one.heading, one.text))[:longest] for one in passages)
        asked = plain(question.strip())
        if not self.prompt.chat:
            return RowPrompt(filled(self._whole, text, asked))
        *before, last = as_turns(self.prompt)
        return RowPrompt(turns=(*before, {"role": "user", "content": filled(last["content"], text, asked)}))

    async def refusals(self, server: ModelServer, prompt: RowPrompt) -> list[float]:
        """log p of each refusal behind a prompt."""
        # one after the other: the server reads the prompt once
        return [sum((await server.score(prompt, self.lead + text)).log_probs) for text in self.prompt.refusals]

    def is_refusal(self, text: str) -> bool:
        return text.strip() in self.prompt.refusals

    def is_empty(self, text: str) -> bool:
        return not text.strip() or self.is_refusal(text)


def plain(text: str) -> str:
    """The text with a space in what may be the name of a control token: a passage cannot end its own turn."""
    return _CONTROL.sub(r"\g<0> ", text)


def log_sum(log_probs: Sequence[float]) -> float:
    most = max(log_probs)
    return most if most == -math.inf else most + math.log(math.fsum(math.exp(one - most) for one in log_probs))
