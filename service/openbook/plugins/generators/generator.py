"""RAG-Sequence under a language model that a server runs: p(y | x) = sum over z of p(z | x) p(y | x, z).

Each passage has a prompt of its own. Fast decoding (section 2.5) asks once for each passage, and once more for each
further beam: the first candidate is said greedily, the others are samples. p(y | x, z) is the product of the
probabilities that the server gives the tokens of y and its end, and 0 where z did not say y. Thorough decoding has the
server score each candidate under each passage. RAG-Token needs the whole distribution of each step, and no server
gives it.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import torch
from torch import Tensor

from openbook.entities import AnswerOptions, GeneratorStatus, Hypothesis, ModelKind, Passage, Quote
from openbook.errors import GeneratorLacks, InvalidRequest, SettingInvalid
from openbook.plugins.generators.prompt import SHORT_ANSWERS, CausalPrompt, read_prompt
from openbook.plugins.generators.served_wording import CHARACTERS, END, END_ID, ServedWording, log_sum, plain
from openbook.plugins.generators.server import ModelServer, RowPrompt, together
from openbook.plugins.generators.settings import GeneratorsSettings
from openbook.plugins.generators.single_prompt import LONG_ANSWERS, OneAnswer, SinglePrompt
from openbook.plugins.generators.wire import AnswerEnds, Said, Saying
from openbook.rag import marginal, provenance
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.decoding import sequence_hypothesis
from openbook.rag.generator import Generator
from openbook.rag.listening import NOBODY, Certain
from openbook.settings import Settings


def open_served(url: str, settings: Settings, own_prompt: CausalPrompt | None) -> "ServedGenerator":
    """The generator at an address, with the prompt of the settings, or the checkpoint's own.

    Raises SettingInvalid, GeneratorUnreachable, and CheckpointInvalid for a prompt that cannot be read.
    """
    prompt = own_prompt if settings.prompt is None else read_prompt(settings.prompt)
    asked = settings if isinstance(settings, GeneratorsSettings) else GeneratorsSettings.model_construct()
    single = None if asked.single_prompt is None else read_prompt(asked.single_prompt)
    for setting, one in (("OPENBOOK_PROMPT", prompt), ("OPENBOOK_SINGLE_PROMPT", single)):
        if one is not None and one.chat and one.opening:
            raise SettingInvalid(setting=setting, reason="the answer of a chat at a server has no opening.")
    if prompt is not None and single is not None and prompt.chat != single.chat:
        reason = "must be a chat exactly where the other prompt is one (OPENBOOK_PROMPT): a server is asked in one way."
        raise SettingInvalid(setting="OPENBOOK_SINGLE_PROMPT", reason=reason)
    given = prompt or single
    server = ModelServer(
        url,
        model=asked.generator_model,
        key="" if asked.generator_key is None else asked.generator_key.get_secret_value(),
        concurrency=asked.generator_concurrency,
        longest_s=settings.longest_s,
        chat=None if given is None else given.chat,
        ends=AnswerEnds((prompt or SHORT_ANSWERS).stops),
    )

    def usual(words: CausalPrompt) -> CausalPrompt:
        if server.abilities.form != "completions":
            return replace(words, chat=True)
        # a line is an answer
        return replace(words, user=f"{words.user}\n", opening="Answer: ", stops=("\n",))

    return ServedGenerator(server, prompt or usual(SHORT_ANSWERS), single or usual(LONG_ANSWERS), audits=asked.audit)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer with its tokens, and their log-probs under each passage; None where p(y | x, z) counts as 0."""

    text: str
    words: tuple[str, ...]
    ended: bool
    rows: tuple[tuple[float, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What the passages of one question said. `empty` is log p(empty answer | x, z) of each."""

    candidates: tuple[Candidate, ...]
    empty: tuple[float, ...]
    n_read: tuple[int, ...]


@dataclass(slots=True)
class AskedPassages:
    """The prompts of each question's passages, and what came of them; None of a question that was abandoned.

    `identity` is the model's when the question began: no answer comes from two.
    """

    questions: Sequence[str]
    passages: Sequence[Sequence[Passage]]
    prompts: list[list[RowPrompt]]
    identity: str
    heard: list[Heard | None] = field(default_factory=list)
    single: list[OneAnswer | None] = field(default_factory=list)


class ServedGenerator(Generator):
    """Answers with the model of a server."""

    def __init__(self, server: ModelServer, prompt: CausalPrompt, single: CausalPrompt, *, audits: bool) -> None:
        """`single` is the prompt of model "single-prompt"."""
        self._server, self._prompt, self._wording = server, prompt, ServedWording(prompt)
        self._single = SinglePrompt(server, single, audits=audits)
        self._words = json.dumps([prompt.content(), single.content()])
        self.tokenizer = SimpleNamespace(all_special_tokens=[END], clean_up_tokenization_spaces=False)
        self.eos, self.stops = END_ID, (END_ID,)
        self.shortest_answer, self.longest_answer = 1, None
        self.quotes = True
        self._lead, self._is_empty = self._wording.lead, self._wording.is_empty

    def called(self, checkpoint: str) -> str:
        name, _, fingerprint = checkpoint.rpartition("@")
        what = f"{fingerprint}\n{self._server.identity}\n{self._words}"
        return f"{name}+{self._server.name}@{hashlib.sha256(what.encode()).hexdigest()[:12]}"

    def status(self) -> GeneratorStatus:
        return self._server.status()

    def check(self, options: AnswerOptions) -> None:
        if options.model == "token":
            raise GeneratorLacks("token", url=self._server.url)
        if options.model == "sequence" and options.decoding == "thorough" and self._server.abilities.scoring is None:
            raise GeneratorLacks("thorough", url=self._server.url)
        if options.leave_one_out:
            raise GeneratorLacks("leave_one_out", url=self._server.url)

    def close(self) -> None:
        self._server.close()

    # --- asking --------------------------------------------------------------------------------------------

    def encode(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> AskedPassages:
        both = zip(questions, passages, strict=True)
        prompts = [[self._wording.of(question, [one]) for one in some] for question, some in both]
        return AskedPassages(questions, passages, prompts, self._server.identity)

    def prepare(self, encoded: AskedPassages, options: AnswerOptions, between_steps: BetweenSteps = nothing) -> None:
        if options.model == "single-prompt":
            encoded.single = self._single.begin(
                encoded.questions, encoded.passages, options, between_steps, encoded.identity
            )
            others = len(encoded.passages[0]) - 1
            encoded.heard = [
                None if one is None else Heard((), (one.empty,) * (1 + others), (one.n_read, *(0,) * others))
                for one in encoded.single
            ]
            return
        works = [self._hear(prompts, options) for prompts in encoded.prompts]
        encoded.heard = self._server.each(works, between_steps, encoded.identity)

    def n_read(self, encoded: AskedPassages) -> list[int]:
        return [
            n
            for heard, prompts in zip(encoded.heard, encoded.prompts, strict=True)
            for n in (heard.n_read if heard else [0] * len(prompts))
        ]

    def texts(self, encoded: AskedPassages) -> list[Sequence[int]]:
        """None: nothing is guessed."""
        return []

    def start(self, encoded: AskedPassages) -> AskedPassages:
        return encoded

    async def _hear(self, prompts: Sequence[RowPrompt], options: AnswerOptions) -> Heard:
        """All that is asked about one question: K prompts, one passage each."""
        spoken = await together([self._say(prompt, options) for prompt in prompts])  # K, B
        said = [[one.said() for one in of_passage] for of_passage in spoken]
        empty = await self._empty(prompts, said)
        # first-come order keeps the candidates' order, and so the answer, the same from run to run
        of_all = list({(one.words, one.ended): one for of_passage in said for one in of_passage}.values())
        candidates = [one for one in of_all if not self._is_empty(one.text)]
        heard = await together([self._scored(prompts, said, one, options) for one in candidates])
        saying_nothing = [any(self._is_empty(one.text) for one in of_passage) for of_passage in said]
        if any(saying_nothing):
            counts = [options.decoding == "thorough" or one for one in saying_nothing]
            heard.append(
                Candidate("", (), True, tuple((one,) if c else None for one, c in zip(empty, counts, strict=True)))
            )
        n_read = tuple(
            of_passage[0].n_read or len(prompt.text) // CHARACTERS
            for of_passage, prompt in zip(spoken, prompts, strict=True)
        )
        return Heard(tuple(heard), empty, n_read)

    async def _say(self, prompt: RowPrompt, options: AnswerOptions) -> list[Saying]:
        most = options.max_new_tokens
        samples = [self._server.say(prompt, most, temperature=1.0, seed=seed) for seed in range(1, options.num_beams)]
        return await together([self._server.say(prompt, most), *samples])

    async def _scored(
        self, prompts: Sequence[RowPrompt], said: Sequence[Sequence[Said]], candidate: Said, options: AnswerOptions
    ) -> Candidate:
        # a part of a character is no text that could be sent
        if options.decoding == "fast" or "\ufffd" in candidate.text:
            return _fast(said, candidate)
        scored = await together([self._server.score(one, candidate.text, candidate.words) for one in prompts])
        return _candidate(candidate.text, scored, ended=candidate.ended)

    async def _empty(self, prompts: Sequence[RowPrompt], said: Sequence[Sequence[Said]]) -> tuple[float, ...]:
        """log p of the end at once, or of a refusal: where the server cannot score, of one that was said."""
        if self._server.abilities.scoring is not None:
            refusals = await together([self._wording.refusals(self._server, prompt) for prompt in prompts])
        else:
            refusals = [
                list({one.text: sum(one.log_probs) for one in said_by if self._wording.is_refusal(one.text)}.values())
                for said_by in said
            ]
        both = zip(said, refusals, strict=True)
        return tuple(log_sum([of_passage[0].empty_log_prob, *likely]) for of_passage, likely in both)

    # --- the marginal --------------------------------------------------------------------------------------

    def decode(
        self,
        start: AskedPassages,
        log_prior: Tensor,
        options: AnswerOptions,
        between_steps: BetweenSteps = nothing,
        listeners: Mapping[int, Certain] = NOBODY,
        texts: Sequence[Sequence[int]] = (),
    ) -> list[tuple[Hypothesis, ...]]:
        if start.single:
            return self._single.decode(start.single, log_prior, between_steps, listeners, start.identity)
        answers = []
        for heard, passages, prior in zip(start.heard, start.passages, log_prior, strict=True):
            # nobody looks at the answer to an abandoned question
            none = Candidate("", (), True, ((0.0,),) * len(passages))
            found = [_hypothesis(one, passages, prior) for one in (heard.candidates if heard else (none,))]
            answers.append(tuple(sorted(found, key=lambda one: -one.log_prob)[: options.num_answers]))
        return answers

    def score(
        self,
        start: AskedPassages,
        log_prior: Tensor,
        targets: Sequence[tuple[int, ...]],
        model: ModelKind,
        between_steps: BetweenSteps = nothing,
    ) -> list[tuple[Hypothesis, ...]]:
        wanted = ["".join(map(chr, target[:-1])) for target in targets]
        works = [self._score_each(prompts, wanted) for prompts in start.prompts]
        answers = []
        both = zip(self._server.each(works, between_steps, start.identity), start.passages, log_prior, strict=True)
        for scored, passages, prior in both:
            found = scored or [Candidate("", (), True, ((0.0,),) * len(passages)) for _ in wanted]
            answers.append(tuple(_hypothesis(one, passages, prior) for one in found))
        return answers

    async def _score_each(self, prompts: Sequence[RowPrompt], targets: Sequence[str]) -> list[Candidate]:
        return await together([self._score_one(prompts, target) for target in targets])

    async def _score_one(self, prompts: Sequence[RowPrompt], target: str) -> Candidate:
        if target:
            text = self._lead + target
            return _candidate(text, await together([self._server.score(one, text) for one in prompts]), ended=True)
        said = await together([self._server.say(prompt, 1) for prompt in prompts])
        empty = await self._empty(prompts, [[one.said()] for one in said])
        return Candidate("", (), True, tuple((one,) for one in empty))

    def empty_log_prob(self, start: AskedPassages, log_prior: Tensor) -> Tensor:
        n_docs = log_prior.shape[1]
        empty = [heard.empty if heard else (-math.inf,) * n_docs for heard in start.heard]
        under = torch.tensor(empty, dtype=torch.float64).to(log_prior)  # (Q, K)
        return marginal.token_marginal(under[..., None], log_prior)[..., 0]  # (Q,)

    def said(self, targets: Sequence[str]) -> list[tuple[int, ...]]:
        """The characters of each target and the end: its tokens are the server's. Raises GeneratorLacks."""
        if self._server.abilities.scoring is None:
            raise GeneratorLacks("score", url=self._server.url)
        for target in targets:
            if any(stop in target.strip() for stop in self._prompt.stops):
                reason = f"{target!r} holds what ends an answer of this checkpoint's generator."
                raise InvalidRequest(field="targets", reason=reason)
        texts = ("" if self._is_empty(target) else plain(target.strip()) for target in targets)
        return [(*map(ord, text), END_ID) for text in texts]


def _fast(said: Sequence[Sequence[Said]], candidate: Said) -> Candidate:
    rows = tuple(
        next(
            (one.log_probs for one in of_passage if (one.words, one.ended) == (candidate.words, candidate.ended)), None
        )
        for of_passage in said
    )
    return Candidate(candidate.text, candidate.words, candidate.ended, rows)


def _candidate(text: str, scored: Sequence[Said], *, ended: bool) -> Candidate:
    """An answer scored under each passage; where a passage cuts it into other tokens than another, as one token."""
    words = scored[0].words
    rows = [one.log_probs for one in scored]
    if any(one.words != words for one in scored):
        words = (text,)
        rows = [(math.fsum(row[:-1]), row[-1]) for row in rows]
    return Candidate(text, words, ended, tuple(row if ended else row[:-1] for row in rows))


def _hypothesis(candidate: Candidate, passages: Sequence[Passage], log_prior: Tensor) -> Hypothesis:
    """log_prior (K,)."""
    n_tokens = len(candidate.words) + candidate.ended
    rows = [row or (-math.inf,) * n_tokens for row in candidate.rows]
    log_probs = torch.tensor(rows, dtype=torch.float64).to(log_prior)  # (K, T)
    ids = (*range(END_ID + 1, END_ID + 1 + len(candidate.words)), *((END_ID,) if candidate.ended else ()))
    text = candidate.text.strip()
    quote = Quote(
        text,
        (*candidate.words, *((END,) if candidate.ended else ())),
        tuple(provenance.answer_spans(text, passage.text) for passage in passages),
    )
    return replace(sequence_hypothesis(ids, log_probs, log_prior), quote=quote)
