"""Who computes the same answers: this generator and transformers' own RAG, each in several precisions; of RAG-Sequence
the search alone CTranslate2, too.

All get the same tokens of the same passages with the same doc_scores, and none may end an answer: the work is equal.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import RagSequenceForGeneration, RagTokenForGeneration

from openbook.entities import AnswerOptions, Hypothesis
from openbook.rag import decoding
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.generator import Generator
from openbook.rag.marginal import doc_log_prior
from openbook_lab.benchmarks.engine_ctranslate2 import CTranslate2
from openbook_lab.benchmarks.engine_work import Contestant, ContestantName, ModeName, Outcome, Work

# Added to the logit of the end: never chosen, and small enough for every precision.
NEVER = -1e4


def load(name: ContestantName, folder: Path, work: Work) -> Contestant:
    """The contestant of that name with the weights in `folder`."""
    library, dtype = name.split(" ")
    made: dict[str, Callable[[Path, str, Work], Contestant]] = {
        "openbook": Openbook,
        "transformers": Transformers,
        "ctranslate2": CTranslate2,
    }
    return made[library](folder, dtype, work)


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
        encoded = self._generator.encode_ids(self._rows)
        encoded_at = time.perf_counter()
        log_prior = doc_log_prior(torch.tensor([work.doc_scores()]))  # (1, K)
        start = self._generator.start(encoded)
        started_at = time.perf_counter()
        options = AnswerOptions(
            model="token" if mode.startswith("token") else "sequence",
            decoding="thorough" if mode == "sequence thorough" else "fast",
            num_beams=1 if mode == "token greedy" else work.num_beams,
            max_new_tokens=work.new_tokens,
        )
        (answers,) = decoding.decode(self._generator, start, log_prior, options)
        seconds = time.perf_counter() - began
        tokens = best_of_passages(answers, log_prior[0]) if mode == "sequence fast" else answers[0].token_ids
        return Outcome(seconds, encoded_at - began, started_at - encoded_at, tokens, answers[0].log_prob)


def best_of_passages(answers: Sequence[Hypothesis], log_prior: torch.Tensor) -> tuple[int, ...]:
    """What the search over each passage found best, one after the other, from answers of fast decoding: log_prior (K,).

    Bayes' rule: p(y | x, z) = p(z | x, y) p(y | x) / p(z | x), and no passage whose beam lacks y has a posterior.
    """
    log_probs = torch.tensor([one.log_prob for one in answers])[:, None]  # (Y, 1)
    posterior = torch.tensor([one.posterior[-1] for one in answers])  # (Y, K)
    best = (log_probs + posterior.log() - log_prior).argmax(0)  # (K,)
    return tuple(token for answer in best.tolist() for token in answers[answer].token_ids)


class Transformers:
    """RagTokenForGeneration.generate and RagSequenceForGeneration.generate, asked for the same search.

    It has no fast decoding that works: in its place stands the search over each passage, which its BART does alone.
    """

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
        self._passages = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        self._inputs = {
            "context_input_ids": ids,
            "context_attention_mask": torch.ones_like(ids),
            "doc_scores": torch.tensor([work.doc_scores()], dtype=getattr(torch, dtype)),  # (1, K)
            "n_docs": work.n_docs,
        }

    @torch.inference_mode()
    def run(self, mode: ModeName) -> Outcome:
        model: Any = self._token
        inputs: dict[str, Any] = self._inputs
        if mode == "sequence thorough":
            model = self._sequence
        elif mode == "sequence fast":
            model, inputs = self._token.rag.generator, self._passages
        began = time.perf_counter()
        said = model.generate(
            **inputs,
            num_beams=1 if mode == "token greedy" else self._work.num_beams,
            max_length=1 + self._work.new_tokens,
            length_penalty=0.0,
            early_stopping=False,
        )
        seconds = time.perf_counter() - began
        rows = said if mode == "sequence fast" else said[:1]  # (K or 1, 1 + T)
        return Outcome(seconds, None, None, tuple(rows[:, 1:].flatten().tolist()), None)
