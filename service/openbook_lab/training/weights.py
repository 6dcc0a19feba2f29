"""Write a checkpoint folder, without the weights that an installed package has.

The folder is a Hugging Face RAG folder under the names of RagTokenForGeneration. If the word embeddings of both models
are all-MiniLM-L6-v2's, it is in float16 without them, and openbook.json says where they are; otherwise it is whole, in
float32.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, RagConfig, RagTokenForGeneration

from openbook.entities import Passage
from openbook.indexing.passage_encoder import (
    MINILM_MODULE,
    MINILM_PACKAGE,
    MINILM_VERSION,
    PassageEncoder,
    minilm_folder,
)
from openbook.rag.checkpoint import (
    FACTS_FILE,
    GENERATOR_TOKENIZER,
    QUESTION_TOKENIZER,
    Checkpoint,
    Facts,
)
from openbook.rag.open_generator import open_generator
from openbook.storage.durable import sha256_of
from openbook_lab.datasets.questions import Question
from openbook_lab.training.examples import NO_ANSWER
from openbook_lab.training.forward import open_scores
from openbook_lab.training.models import RagModels

# every name of the word embeddings in the folder, and their name in the package's file
EMBEDDINGS = (
    "rag.question_encoder.question_encoder.bert_model.embeddings.word_embeddings.weight",
    "rag.generator.model.shared.weight",
    "rag.generator.model.encoder.embed_tokens.weight",
    "rag.generator.model.decoder.embed_tokens.weight",
    "rag.generator.lm_head.weight",
)
PACKAGED_EMBEDDINGS = "embeddings.word_embeddings.weight"
SHARDS = {
    "model-00001-of-00002.safetensors": "rag.question_encoder.",
    "model-00002-of-00002.safetensors": "rag.generator.",
}
# save_pretrained also writes where a tokenizer was loaded from and how it was last called
NOT_THE_TOKENIZERS = frozenset(
    {"is_local", "local_files_only", "max_length", "pad_to_multiple_of", "stride", "truncation_strategy"}
)


def served(models: RagModels) -> Checkpoint:
    """Both models, as they are now, for the code that answers questions: the lengths of the paper's code, five
    passages, and never the empty answer, which training made the target of passages that do not answer.
    """
    encoder, generator, wording = models.question_encoder.config, models.generator.config, models.wording
    special = {
        "pad_token_id": generator.pad_token_id,
        "bos_token_id": getattr(generator, "bos_token_id", None),
        "eos_token_id": generator.eos_token_id,
        "decoder_start_token_id": generator.decoder_start_token_id,
    }
    (nothing,) = wording.targets([NO_ANSWER], longest=8)
    return Checkpoint(
        config=RagConfig(
            question_encoder=_config_of(models.question_encoder),
            generator=_config_of(models.generator),
            title_sep=wording.title_sep,
            doc_sep=wording.doc_sep,
            n_docs=5,
            max_combined_length=300,
            retrieval_vector_size=encoder.projection_dim or encoder.hidden_size,
            is_encoder_decoder=True,
            vocab_size=generator.vocab_size,
            **special,
        ),
        question_encoder=models.question_encoder,
        generator=models.generator,
        question_tokenizer=models.question_tokenizer,
        generator_tokenizer=wording.tokenizer,
        generation=GenerationConfig(
            # transformers counts what the decoder has read, its start included
            min_length=len(wording.prefix) + len(nothing),
            forced_bos_token_id=wording.prefix[1] if len(wording.prefix) > 1 else None,
            **special,
        ),
        facts=Facts(name="training"),
        fingerprint="",
    )


@torch.no_grad()
def alone_scores(models: RagModels, questions: Sequence[Question]) -> tuple[float, float]:
    """Exact match and F1, in percent, of greedy answers to questions with their whole paragraph; none in a closed
    book."""
    alone = [[Passage("", question.title, question.context)] for question in questions]
    certain = torch.zeros(len(alone), 1, device=models.generator.device)  # (Q, 1)
    return open_scores(open_generator(served(models)), questions, alone, certain)


def _config_of(model: PreTrainedModel) -> dict[str, Any]:
    """A model's configuration without the path that it was loaded from."""
    return {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}


def save_trained(folder: Path, models: RagModels, *, name: str, passage_encoder: PassageEncoder) -> None:
    """Write the checkpoint, whole or without what the package of all-MiniLM-L6-v2 has."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, tokenizer = served(models), models.wording.tokenizer
    model = RagTokenForGeneration(
        config=checkpoint.config,
        question_encoder=copy.deepcopy(models.question_encoder).cpu(),
        generator=copy.deepcopy(models.generator).cpu(),
    )
    model.generation_config = checkpoint.generation
    facts: dict[str, Any] = {
        "format": 1,
        "name": name,
        "uncased": tokenizer.tokenize("A") == tokenizer.tokenize("a"),
        "passage_encoder": {"name": passage_encoder.name, "fingerprint": passage_encoder.fingerprint},
    }
    if models.prior.bm25:
        facts["prior"] = asdict(models.prior)
    state, packaged = model.state_dict(), minilm_folder() / "model.safetensors"
    if _has_packaged_embeddings(state, packaged):
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
        _save_shards(folder, {key: tensor for key, tensor in state.items() if key not in EMBEDDINGS})
        facts["base"] = {
            "package": MINILM_PACKAGE,
            "version": MINILM_VERSION,
            "weights": f"{MINILM_MODULE}/model/{packaged.name}",
            "sha256": sha256_of(packaged),
            "tensors": dict.fromkeys(EMBEDDINGS, PACKAGED_EMBEDDINGS),
        }
    else:
        model.float().save_pretrained(folder)
    _save_tokenizer(models.question_tokenizer, folder / QUESTION_TOKENIZER)
    _save_tokenizer(tokenizer, folder / GENERATOR_TOKENIZER)
    write_json(folder / FACTS_FILE, facts)


def _has_packaged_embeddings(state: Mapping[str, Tensor], packaged: Path) -> bool:
    """Whether all word embeddings are the package's, bit for bit."""
    if not all(key in state for key in EMBEDDINGS):
        return False
    with safe_open(packaged, framework="pt") as tensors:
        original = tensors.get_tensor(PACKAGED_EMBEDDINGS)  # (V, d)
    return all(torch.equal(state[key].float(), original) for key in EMBEDDINGS)


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """The tokenizer's files, without the lengths that its last caller cut and padded to."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {name: value for name, value in settings.items() if name not in NOT_THE_TOKENIZERS})


def _save_shards(folder: Path, state: Mapping[str, Tensor]) -> None:
    """The question encoder in one file, the generator in the other, and the index that transformers reads."""
    weight_map: dict[str, str] = {}
    size = 0
    for file, prefix in SHARDS.items():
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
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """As the other files of a checkpoint are written."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
