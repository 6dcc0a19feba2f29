"""The contestants of `bench engine`, each in a process of its own.

They are this generator and transformers' own RAG, each in several precisions; and CTranslate2's BART, which can do one
half of RAG-Sequence: the search over each passage alone. All get the same tokens of the same passages with the same
doc_scores, and none may end an answer early: the work is equal.
"""

import gc
import importlib.util
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedModel, RagSequenceForGeneration, RagTokenForGeneration
from transformers.utils import logging as hf_logging

from openbook.entities import AnswerOptions, Hypothesis
from openbook.errors import SettingInvalid
from openbook.rag import decoding
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.encoder_decoder import EncoderDecoder
from openbook.rag.marginal import doc_log_prior
from openbook.rag.products import Products
from openbook_lab.benchmarks.children import Child, Progress
from openbook_lab.benchmarks.engine_work import Contestant, Work, WorkDone
from openbook_lab.benchmarks.names import ContestantName, ModeName

# Added to the logit of the end token: it is never chosen, and every precision can hold the number.
NEVER = -1e4
# transformers 4 wrote this of every BART and CTranslate2 asks for it: layers and embeddings are normalised after their
# sums, and nothing is normalised after the last layer.
LAYOUT = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False}


class ContestantProcess(Child):
    """Ready when the first answer comes back."""

    def __init__(self, name: ContestantName, folder: Path, work: Work) -> None:
        super().__init__(_load, name, folder, work)

    def run(self, mode: ModeName, threads: int) -> tuple[WorkDone, int]:
        """One answer, and the largest memory that the process has had until now, in bytes."""
        answer: tuple[WorkDone, int] = self.request((mode, threads))
        return answer

    def products(self) -> str | None:
        """In which ways it multiplies, and how many of its products; None for a contestant that is not ours."""
        summary: str | None = self.request(None)
        return summary


def _load(
    _: Progress, name: ContestantName, folder: Path, work: Work
) -> Callable[[tuple[ModeName, int] | None], tuple[WorkDone, int] | str | None]:
    warnings.simplefilter("ignore")
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    library, dtype = name.split(" ")
    made: dict[str, Callable[[Path, str, Work], Contestant]] = {
        "openbook": Openbook,
        "transformers": Transformers,
        "ctranslate2": CTranslate2,
    }
    contestant = made[library](folder, dtype, work)

    def run(asked: tuple[ModeName, int] | None) -> tuple[WorkDone, int] | str | None:
        if asked is None:
            return contestant.products.summary() if isinstance(contestant, Openbook) else None
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
        self.products = Products()
        checkpoint = load_checkpoint(folder, dtype=dtype, products=self.products)
        checkpoint.generator.final_logits_bias[0, checkpoint.generator.config.eos_token_id] = NEVER
        self._work = work
        self._generator = EncoderDecoder(checkpoint, keep_weights=False)
        self._rows = work.rows(checkpoint.generator.config.vocab_size)

    @torch.inference_mode()
    def run(self, mode: ModeName) -> WorkDone:
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
            num_beams=1 if mode in ("token greedy", "token stepwise") else work.num_beams,
            max_new_tokens=work.new_tokens,
            num_answers=work.num_beams * work.n_docs,
        )
        texts = self._generator.texts(encoded) if mode == "token greedy" else ()
        (answers,) = decoding.decode(self._generator, start, log_prior, options, texts=texts)
        seconds = time.perf_counter() - began
        tokens = best_of_passages(answers, log_prior[0]) if mode == "sequence fast" else answers[0].token_ids
        return WorkDone(seconds, encoded_at - began, started_at - encoded_at, tokens, answers[0].log_prob)


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
        self._token = RagTokenForGeneration.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
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
        return WorkDone(seconds, None, None, tuple(rows[:, 1:].flatten().tolist()), None)


def require_library() -> None:
    """Raise SettingInvalid with what to install where CTranslate2 is missing."""
    if importlib.util.find_spec("ctranslate2") is None:
        raise SettingInvalid(
            setting="contestants",
            reason="ctranslate2 is not installed: pip install 'openbook-lab[ctranslate2]'",
        )


class CTranslate2:
    """CTranslate2's BART of the generator in `folder`, converted into a folder beside it; no marginal, no posteriors.

    Its converter reads models of transformers 4, whose BART configurations say more than those of transformers 5, and
    needs the tokenizer's vocabulary. Tokens are numbers here, so that any vocabulary will do.
    """

    def __init__(self, folder: Path, dtype: str, work: Work) -> None:
        require_library()
        self._work = work
        self._dtype = dtype
        self._converted = folder.with_name(f"{folder.name}-ctranslate2-{dtype}")
        vocabulary = convert(folder, self._converted, dtype)
        gc.collect()  # a cycle would keep the converted weights in memory while others are measured
        self._rows = [[str(token) for token in row] for row in work.rows(vocabulary)]
        self._loaded: tuple[int, Any] | None = None

    def run(self, mode: ModeName) -> WorkDone:
        """`mode` is "sequence fast": there is no other."""
        translator = self._translator(torch.get_num_threads())
        began = time.perf_counter()
        found = self._search(translator)
        seconds = time.perf_counter() - began
        tokens = tuple(int(token) for passage in found for token in passage.hypotheses[0])
        return WorkDone(seconds, None, None, tokens, None)

    def _translator(self, threads: int) -> Any:
        """Loaded again for another number of threads. One search warms it up."""
        if self._loaded is None or self._loaded[0] != threads:
            from ctranslate2 import Translator

            self._loaded = None  # no two of them in memory
            translator = Translator(
                str(self._converted), compute_type=self._dtype, inter_threads=1, intra_threads=threads
            )
            self._search(translator)
            self._loaded = threads, translator
        return self._loaded[1]

    def _search(self, translator: Any) -> Any:
        return translator.translate_batch(
            self._rows,
            beam_size=self._work.num_beams,
            length_penalty=0.0,
            # no answer ends before its last token
            min_decoding_length=self._work.new_tokens,
            max_decoding_length=self._work.new_tokens,
        )


def convert(folder: Path, converted: Path, dtype: str) -> int:
    """Write the BART generator of the RAG folder `folder` as a CTranslate2 model; returns its number of tokens."""
    from ctranslate2.converters import TransformersConverter

    generator = load_checkpoint(folder, dtype="float32").generator
    for name, value in LAYOUT.items():
        setattr(generator.config, name, value)

    class InMemory(TransformersConverter):  # type: ignore[misc]
        """Takes the generator that is loaded already; from the folder it reads the kind of model."""

        def load_model(self, *_: Any, **__: Any) -> PreTrainedModel:
            return generator

        def load_tokenizer(self, *_: Any, **__: Any) -> "NumberedTokens":
            return NumberedTokens(generator.config)

    with TemporaryDirectory(dir=converted.parent) as described:
        generator.config.save_pretrained(described)
        InMemory(described).convert(str(converted), quantization=dtype, force=True)
    vocabulary: int = generator.config.vocab_size
    return vocabulary


class NumberedTokens:
    """The part of a tokenizer that the converter needs, for tokens named by their numbers."""

    def __init__(self, config: Any) -> None:
        self._size: int = config.vocab_size
        self.bos_token = str(config.bos_token_id)
        self.eos_token = str(config.eos_token_id)
        # no number is unknown, but the library wants an unknown token
        self.unk_token = str(config.pad_token_id)

    def get_vocab(self) -> dict[str, int]:
        return {str(number): number for number in range(self._size)}

    def convert_ids_to_tokens(self, number: int) -> str:
        return str(number)
