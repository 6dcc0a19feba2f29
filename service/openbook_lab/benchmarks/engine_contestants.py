"""The contestants of `bench engine`, each in a process of its own.

They are this generator and transformers' own RAG, each in several precisions. All get the same tokens of the same
passages with the same doc_scores, and none may end an answer early: the work is equal.
"""

import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import RagSequenceForGeneration, RagTokenForGeneration
from transformers.utils import logging as hf_logging

from openbook.entities import AnswerOptions, Hypothesis
from openbook.rag import decoding
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.marginal import doc_log_prior
from openbook_lab.benchmarks.children import Child, Progress
from openbook_lab.benchmarks.engine_work import Work, WorkDone
from openbook_lab.benchmarks.names import ContestantName, ModeName

# Added to the logit of the end token: it is never chosen, and every precision can hold the number.
NEVER = -1e4


class ContestantProcess(Child):
    """Ready when the first answer comes back."""

    def __init__(self, name: ContestantName, folder: Path, work: Work) -> None:
        super().__init__(_load, name, folder, work)

    def run(self, mode: ModeName, threads: int) -> tuple[WorkDone, int]:
        """One answer, and the largest memory that the process has had until now, in bytes."""
        answer: tuple[WorkDone, int] = self.request((mode, threads))
        return answer


def _load(
    _: Progress, name: ContestantName, folder: Path, work: Work
) -> Callable[[tuple[ModeName, int]], tuple[WorkDone, int]]:
    warnings.simplefilter("ignore")
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    library, dtype = name.split(" ")
    contestant = Openbook(folder, dtype, work) if library == "openbook" else Transformers(folder, dtype, work)

    def run(asked: tuple[ModeName, int]) -> tuple[WorkDone, int]:
        mode, threads = asked
        torch.set_num_threads(threads)
        return contestant.run(mode), peak_bytes()

    return run


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Openbook:
    """The generator of the service."""

    def __init__(self, folder: Path, dtype: Any, work: Work) -> None:
        checkpoint = load_checkpoint(folder, dtype=dtype)
        checkpoint.generator.final_logits_bias[0, checkpoint.generator.config.eos_token_id] = NEVER
        self._work = work
        self._generator = EncoderDecoder(checkpoint, keep_weights=False)
        self._rows = work.rows(checkpoint.generator.config.vocab_size)

    @torch.inference_mode()
    def run(self, mode: ModeName) -> WorkDone:
        work = self._work
        began = time.perf_counter()
        encoded = self._generator.encode_ids(self._rows)
        log_prior = doc_log_prior(torch.tensor([work.doc_scores()]))  # (1, K)
        start = self._generator.start(encoded)
        options = AnswerOptions(
            model="token" if mode.startswith("token") else "sequence",
            decoding="thorough" if mode == "sequence thorough" else "fast",
            num_beams=1 if mode in ("token greedy", "token stepwise") else work.num_beams,
            max_new_tokens=work.new_tokens,
            num_answers=work.num_beams * work.n_docs,
        )
        texts = self._generator.texts(encoded) if mode == "token greedy" else ()
        (answers,) = decoding.decode(self._generator, start, log_prior, options, texts=texts)
        seconds = time.perf_counter() - began
        tokens = best_of_passages(answers, log_prior[0]) if mode == "sequence fast" else answers[0].token_ids
        return WorkDone(seconds, tokens)


def best_of_passages(answers: Sequence[Hypothesis], log_prior: torch.Tensor) -> tuple[int, ...]:
    """The best answer from each passage's search, joined, from answers of fast decoding: log_prior (K,).

    Bayes' rule: p(y | x, z) = p(z | x, y) p(y | x) / p(z | x). A passage whose beam lacks y has posterior 0.
    """
    log_probs = torch.tensor([one.log_prob for one in answers])[:, None]  # (Y, 1)
    posterior = torch.tensor([one.posterior[-1] for one in answers])  # (Y, K)
    best = (log_probs + posterior.log() - log_prior).argmax(0)  # (K,)
    return tuple(token for answer in best.tolist() for token in answers[answer].token_ids)


class Transformers:
    """RagTokenForGeneration.generate and RagSequenceForGeneration.generate, asked for the same search.

    Its fast decoding does not work: instead, its BART alone searches over each passage.
    """

    def __init__(self, folder: Path, dtype: str, work: Work) -> None:
        self._work = work
        self._token = RagTokenForGeneration.from_pretrained(
            folder, dtype=getattr(torch, dtype), trust_remote_code=False
        ).eval()
        # RAG-Sequence scores with this number and ignores the argument
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
    def run(self, mode: ModeName) -> WorkDone:
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
        return WorkDone(seconds, tuple(rows[:, 1:].flatten().tolist()))
