"""The model "single-prompt": the server reads all passages in one prompt, as most services do, and nothing is
marginalised: p(y | x, z_1 .. z_K).

No posterior says what such an answer stands on, so this audits its sentences. The server scores the answer again
without each passage, and without all of them. What a sentence's log-prob loses without a passage is the support that
the passage gives it. The model would say a sentence that loses little without all of them anyway: it is unsupported.
"""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from openbook.entities import AnswerOptions, Audit, Hypothesis, Passage, Quote, Sentence
from openbook.plugins.generators.prompt import CausalPrompt
from openbook.plugins.generators.served_wording import CHARACTERS, END, END_ID, ServedWording, log_sum
from openbook.plugins.generators.server import ModelServer, RowPrompt, together
from openbook.plugins.generators.wire import AnswerEnds, Said, Saying
from openbook.rag import provenance
from openbook.rag.blocks import blocks_of, sentences_of
from openbook.rag.decoder import BetweenSteps
from openbook.rag.listening import Certain

LONG_ANSWERS = CausalPrompt(
    system="Answer the question in whole sentences, from these passages alone. If they do not hold the answer, say: "
    "unknown",
    user="{passage}\n\nQuestion: {question}",
    refusals=("unknown", "Unknown", "unknown.", "Unknown."),
)
"""The prompt where OPENBOOK_SINGLE_PROMPT names none. A server that continues texts gives one line as the answer."""
# A sentence is supported where the passages together add at least so much to its log-prob, a token.
LEAST_SUPPORT = 0.5
# Seconds between two looks whether the server has begun an answer that is no refusal.
LOOK_S = 0.01


@dataclass(slots=True)
class OneAnswer:
    """The answer to one question while the server says it: `rest` adds tokens to `saying` until the answer is whole.

    `empty` is log p(empty answer | x, all passages): of the end at once, or of a refusal.
    """

    question: str
    passages: Sequence[Passage]
    prompt: RowPrompt
    empty: float = -math.inf
    saying: Saying = field(default_factory=lambda: Saying([]))
    rest: "asyncio.Task[Saying] | None" = None

    @property
    def n_read(self) -> int:
        """About how many tokens the prompt has. The server counts them, but says so only at the end of the answer."""
        return (len(self.prompt.text) + sum(len(turn["content"]) for turn in self.prompt.turns)) // CHARACTERS


class SinglePrompt:
    """Asks a server for answers from all passages at once."""

    def __init__(self, server: ModelServer, prompt: CausalPrompt, *, audits: bool) -> None:
        self._server, self._audits = server, audits
        self._wording, self._ends = ServedWording(prompt), AnswerEnds(prompt.stops)

    def begin(
        self,
        questions: Sequence[str],
        passages: Sequence[Sequence[Passage]],
        options: AnswerOptions,
        between_steps: BetweenSteps,
        identity: str,
    ) -> list[OneAnswer | None]:
        """Have the server begin each answer; wait until it is clear whether that is a refusal. None was abandoned."""
        asked = zip(questions, passages, strict=True)
        answers = [OneAnswer(question, some, self._wording.of(question, some)) for question, some in asked]
        begun: list[OneAnswer | None] = [None] * len(answers)
        try:
            begun = self._server.each([self._begin(one, options) for one in answers], between_steps, identity)
        finally:
            both = zip(answers, begun, strict=True)
            self._server.stop([one.rest for one, wanted in both if wanted is None and one.rest is not None])
        return begun

    async def _begin(self, one: OneAnswer, options: AnswerOptions) -> OneAnswer:
        scores = self._server.abilities.scoring is not None
        likely = await self._wording.refusals(self._server, one.prompt) if scores else []
        saying = self._server.say(one.prompt, options.max_new_tokens, ends=self._ends, into=one.saying)
        one.rest = asyncio.create_task(saying)
        try:
            while not one.rest.done() and self._may_refuse(one.saying.text):
                await asyncio.sleep(LOOK_S)
            if one.rest.done():
                one.rest.result()
        except BaseException:
            one.rest.cancel()
            raise
        said = one.saying.said()
        if not scores and said.ended and self._wording.is_refusal(said.text):
            likely = [math.fsum(said.log_probs)]
        one.empty = log_sum([said.empty_log_prob, *likely])
        return one

    def decode(
        self,
        answers: Sequence[OneAnswer | None],
        log_prior: Tensor,
        between_steps: BetweenSteps,
        listeners: Mapping[int, Certain],
        identity: str,
    ) -> list[tuple[Hypothesis, ...]]:
        """The answer to each question, told while it is said, and audited: log_prior (Q, K). None was abandoned."""
        priors = [tuple(row) for row in log_prior.exp().tolist()]

        def listen() -> Collection[int] | None:
            for number, hears in listeners.items():
                one = answers[number]
                tokens = [token for token in tuple(one.saying.tokens) if not token.is_end] if one else []
                words = tuple(token.text for token in tokens)
                if not self._may_refuse("".join(words)):
                    begun = Said(words, tuple(token.log_prob for token in tokens), False, "")
                    hears(_hypothesis(begun, priors[number]))
            return between_steps()

        said = self._server.each([self._rest(one) for one in answers], listen, identity)
        for number, hears in listeners.items():
            if (whole := said[number]) is not None:
                hears(_hypothesis(whole, priors[number]))
        works = [self._audit(one, whole) for one, whole in zip(answers, said, strict=True)]
        found: list[tuple[Hypothesis, ...]] = []
        for one, whole, audit, prior in zip(
            answers, said, self._server.each(works, between_steps, identity), priors, strict=True
        ):
            # nobody looks at the answer to an abandoned question
            whole = whole or Said((), (0.0,), True, "")
            texts = [passage.text for passage in one.passages] if one else [""] * len(prior)
            spans = tuple(provenance.answer_spans(whole.text.strip(), text) for text in texts)
            found.append((_hypothesis(whole, prior, spans, audit),))
        return found

    def _may_refuse(self, text: str) -> bool:
        """Whether an answer that begins so may still become a refusal."""
        return any(refusal.startswith(text.strip()) for refusal in ("", *self._wording.prompt.refusals))

    async def _rest(self, one: OneAnswer | None) -> Said | None:
        """The whole answer; a refusal is the empty one."""
        if one is None or one.rest is None:
            return None
        said = (await one.rest).said()
        if self._wording.is_empty(said.text):
            return Said((), (one.empty,), True, "")
        return said

    async def _audit(self, one: OneAnswer | None, said: Said | None) -> Audit | None:
        if one is None or said is None:
            return None
        text = said.text
        begins = len(text) - len(text.lstrip())
        found = [stretch for block in blocks_of(text) for stretch in sentences_of(text, block)]
        sentences = [Sentence(text[start:end], start - begins, end - begins) for start, end in found]
        reason = None
        if not self._audits:
            reason = "The service does not audit (OPENBOOK_AUDIT)."
        elif self._server.abilities.scoring is None:
            reason = "The server tells no probability of given words."
        if reason is not None or not sentences:
            return Audit(tuple(sentences), reason)
        several = len(one.passages) > 1
        fewer = [[*one.passages[:k], *one.passages[k + 1 :]] for k in range(len(one.passages)) if several]
        prompts = [one.prompt, *(self._wording.of(one.question, some) for some in [*fewer, []])]
        # the whole answer again, too: where words are cut into other tokens, all of them are cut alike
        scored = await together([self._server.score(prompt, text, said.words) for prompt in prompts])
        ends = [end for _, end in found]
        whole, *without = [by_sentence(some, text, ends) for some in scored]  # S each
        return Audit(audited(sentences, whole, without))


def audited(
    sentences: Sequence[Sentence], whole: Sequence[list[float]], without: Sequence[Sequence[list[float]]]
) -> tuple[Sentence, ...]:
    """The sentences with their support: of the log-probs of each one's tokens, read with all passages, and without each
    of them and at last without any (K + 1, or 1 of a single passage).

    A sentence that the model says again has the support of the first: what it has said makes it as likely without any
    passage.
    """
    *each, every = [
        [math.fsum(own) - math.fsum(rest) for own, rest in zip(whole, some, strict=True)] for some in without
    ]  # K or none, and one, of S each
    found: list[Sentence] = []
    for at, sentence in enumerate(sentences):
        # the last one may break off
        first = next((earlier for earlier in found if earlier.text.startswith(sentence.text)), None) or replace(
            sentence,
            supported=every[at] >= LEAST_SUPPORT * len(whole[at]),
            support=tuple(drops[at] for drops in each or [every]),
            support_of_all=every[at],
        )
        found.append(replace(first, text=sentence.text, start=sentence.start, end=sentence.end))
    return tuple(found)


def by_sentence(said: Said, text: str, ends: Sequence[int]) -> list[list[float]]:
    """The log-probs of each sentence's tokens. `ends` says where in the text each sentence ends; a token belongs to the
    sentence that its last character stands in."""
    found: list[list[float]] = [[] for _ in ends]
    at = place = 0
    # the end of the answer is in no sentence
    for word, log_prob in zip(said.words, said.log_probs, strict=False):
        # a token that is a part of a character stands where that begins
        begins = -1 if "\ufffd" in word else text.find(word, at)
        at = at if begins < 0 else begins + len(word.rstrip())
        while place + 1 < len(ends) and at > ends[place]:
            place += 1
        found[place].append(log_prob)
    return found


def _hypothesis(
    said: Said,
    prior: tuple[float, ...],
    spans: tuple[tuple[tuple[int, int], ...], ...] = (),
    audit: Audit | None = None,
) -> Hypothesis:
    """Nothing is marginalised: the passages keep their prior (K) at each token."""
    ids = (*range(END_ID + 1, END_ID + 1 + len(said.words)), *((END_ID,) if said.ended else ()))
    quote = Quote(said.text.strip(), (*said.words, *((END,) if said.ended else ())), spans)
    columns = (prior,) * len(said.log_probs)
    return Hypothesis(ids, math.fsum(said.log_probs), said.log_probs, columns, quote, audit=audit)
