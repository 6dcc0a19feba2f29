"""CTranslate2's BART: a fast search over each passage alone, which is the half of RAG-Sequence that it can do.

Its converter reads models of transformers 4, whose BART configurations said more than those of transformers 5 do, and
a vocabulary that is its tokenizer's. Tokens are numbers here, so that any vocabulary will do.
"""

import gc
import importlib.util
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedModel

from openbook.errors import SettingInvalid
from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.benchmarks.engine_work import ModeName, Outcome, Work

# What transformers 4 wrote of every BART and CTranslate2 asks for: layers are normalised behind their sums, embeddings
# are normalised, too, and there is no further normalisation behind the last layer.
LAYOUT = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False}


def require_library() -> None:
    """Raises SettingInvalid, which says what to install, where CTranslate2 is missing."""
    if importlib.util.find_spec("ctranslate2") is None:
        raise SettingInvalid(
            setting="contestants",
            reason="ctranslate2 is not installed: pip install 'openbook-lab[ctranslate2]'",
        )


class CTranslate2:
    """The generator in `folder`, converted to a folder beside it when made; no marginal, no posteriors."""

    def __init__(self, folder: Path, dtype: str, work: Work) -> None:
        require_library()
        self._work = work
        self._dtype = dtype
        self._converted = folder.with_name(f"{folder.name}-ctranslate2-{dtype}")
        vocabulary = convert(folder, self._converted, dtype)
        gc.collect()  # the weights that were converted, which a cycle would hold while others are measured
        self._rows = [[str(token) for token in row] for row in work.rows(vocabulary)]
        self._loaded: tuple[int, Any] | None = None

    def run(self, mode: ModeName) -> Outcome:
        """`mode` is "sequence fast": there is no other."""
        translator = self._translator(torch.get_num_threads())
        began = time.perf_counter()
        found = self._search(translator)
        seconds = time.perf_counter() - began
        tokens = tuple(int(token) for passage in found for token in passage.hypotheses[0])
        return Outcome(seconds, None, None, tokens, None)

    def _translator(self, threads: int) -> Any:
        """Its number of threads is decided when it is loaded. One search goes before those that are measured."""
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
    """Write the BART generator of the RAG folder `folder` as a CTranslate2 model, and say how many tokens it has."""
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
    """What the converter asks of a tokenizer, for tokens that are called by their numbers."""

    def __init__(self, config: Any) -> None:
        self._size: int = config.vocab_size
        self.bos_token = str(config.bos_token_id)
        self.eos_token = str(config.eos_token_id)
        # no number is unknown; the library wants one token to stand for those that are
        self.unk_token = str(config.pad_token_id)

    def get_vocab(self) -> dict[str, int]:
        return {str(number): number for number in range(self._size)}

    def convert_ids_to_tokens(self, number: int) -> str:
        return str(number)
