"""Who computes the same answers: this generator and transformers' own RAG, each in several precisions.

All get the same tokens of the same passages with the same doc_scores, and none may end an answer: the work is equal.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import torch
from transformers import RagSequenceForGeneration, RagTokenForGeneration

from service.entities import Hypothesis
from service.rag import decoding
from service.rag.checkpoint import load_checkpoint
from service.rag.decoder import nothing
from service.rag.generator import Generator
from service.rag.marginal import doc_log_prior

ContestantName = Literal[
    "openbook float32", "openbook bfloat16", "openbook int8", "transformers float32", "transformers bfloat16"
]
CONTESTANTS: tuple[ContestantName, ...] = get_args(ContestantName)
ModeName = Literal["token greedy", "token beams", "sequence thorough"]
MODES: tuple[ModeName, ...] = get_args(ModeName)
# Added to the logit of the end: never chosen, and small enough for every precision.
NEVER = -1e4


@dataclass(frozen=True, slots=True)
class Work:
    """One question's K passages of L tokens each, and what is asked of them."""

    n_docs: int = 5
    length: int = 160
    new_tokens: int = 16
    num_beams: int = 4
    seed: int = 0

    def rows(self, vocabulary: int) -> list[list[int]]:
        """Random tokens, none of them special: K lists of L."""
        dice = torch.Generator().manual_seed(self.seed)
        return torch.randint(
            min(1000, vocabulary // 4), vocabulary - 1, (self.n_docs, self.length), generator=dice
        ).tolist()

    def doc_scores(self) -> list[float]:
        """Inner products that leave a prior to weigh."""
        return [-0.5 * rank for rank in range(self.n_docs)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: what it took, and of that the parts where they were measured. `tokens` are the answer's."""

    seconds: float
    encode_s: float | None
    start_s: float | None
    tokens: tuple[int, ...]
    log_prob: float | None


class Contestant(Protocol):
    """Answers with one thread or several; loaded once."""

    def run(self, mode: ModeName) -> Outcome: ...


def load(name: ContestantName, folder: Path, work: Work) -> Contestant:
    """The contestant of that name with the weights in `folder`."""
    library, dtype = name.split(" ")
    return (Openbook if library == "openbook" else Transformers)(folder, dtype, work)


class Openbook:
    """The generator that serves."""

    def __init__(self, folder: Path, dtype: Any, work: Work) -> None:
        checkpoint = load_checkpoint(folder, dtype=dtype)
        checkpoint.generator.final_logits_bias[0, checkpoint.generator.config.eos_token_id] = NEVER
        self._work = work
        self._generator = Generator(checkpoint, keep_weights=False)
        self._rows = work.rows(checkpoint.generator.config.vocab_size)

    @torch.inference_mode()
    def run(self, mode: ModeName) -> Outcome:
        work = self._work
        began = time.perf_counter()
        encoded = self._generator.encode_ids(self._rows, n_questions=1, n_docs=work.n_docs)
        encoded_at = time.perf_counter()
        log_prior = doc_log_prior(torch.tensor([work.doc_scores()]))  # (1, K)
        start = self._generator.start(encoded)
        started_at = time.perf_counter()
        decode: Callable[..., list[tuple[Hypothesis, ...]]] = (
            (lambda **options: decoding.rag_sequence(**options, thorough=True))
            if mode == "sequence thorough"
            else decoding.rag_token
        )
        best = decode(
            generator=self._generator,
            encoded=encoded,
            log_prior=log_prior,
            num_beams=1 if mode == "token greedy" else work.num_beams,
            max_new_tokens=work.new_tokens,
            between_steps=nothing,
            start=start,
        )[0][0]
        seconds = time.perf_counter() - began
        return Outcome(seconds, encoded_at - began, started_at - encoded_at, best.token_ids, best.log_prob)


class Transformers:
    """RagTokenForGeneration.generate and RagSequenceForGeneration.generate, asked for the same search."""

    def __init__(self, folder: Path, dtype: str, work: Work) -> None:
        self._work = work
        self._token = RagTokenForGeneration.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        # RAG-Sequence scores with this number, whatever it is asked for
        self._token.config.n_docs = work.n_docs
        # both have the same parts: one copy of the weights is enough
        self._sequence = RagSequenceForGeneration(
            config=self._token.config,
            question_encoder=self._token.rag.question_encoder,
            generator=self._token.rag.generator,
        ).eval()
        generator = self._token.rag.generator
        generator.final_logits_bias[0, generator.config.eos_token_id] = NEVER
        ids = torch.tensor(work.rows(generator.config.vocab_size))  # (K, L)
        self._inputs = {
            "context_input_ids": ids,
            "context_attention_mask": torch.ones_like(ids),
            "doc_scores": torch.tensor([work.doc_scores()], dtype=getattr(torch, dtype)),  # (1, K)
        }

    @torch.inference_mode()
    def run(self, mode: ModeName) -> Outcome:
        model = self._sequence if mode == "sequence thorough" else self._token
        began = time.perf_counter()
        said = model.generate(
            **self._inputs,
            n_docs=self._work.n_docs,
            num_beams=1 if mode == "token greedy" else self._work.num_beams,
            max_length=1 + self._work.new_tokens,
            length_penalty=0.0,
            early_stopping=False,
        )
        seconds = time.perf_counter() - began
        return Outcome(seconds, None, None, tuple(said[0].tolist()[1:]), None)
