"""A causal language model as the base of a training: by LoRA, or with its generator left as it is."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.plugins.generators.causal_wording import CausalWording
from openbook.plugins.generators.prompt import CausalPrompt
from openbook.rag.checkpoint import FACTS_FILE, GENERATOR, QUESTION_ENCODER, read_facts
from openbook.rag.encoder_head import read_question_encoder
from openbook.rag.weights import read_auto
from openbook_lab.training.averaging import CALIBRATED
from openbook_lab.training.base import Base, check_passage_encoder, find_base, kind_of, read_object
from openbook_lab.training.lora import add_lora, lora_parameters, lora_state, merged
from openbook_lab.training.models import RagModels
from openbook_lab.training.recipe import GENERATOR as GENERATOR_PARTS
from openbook_lab.training.recipe import WORD_EMBEDDINGS, TrainingConfig
from openbook_lab.training.weights import generation_of, write_json


class CausalBase(Base):
    """A folder that `openbook checkpoint compose` or a training wrote; `config` is its generator's."""

    __slots__ = ()

    def check(self, config: TrainingConfig) -> None:
        """Raises SettingInvalid for a recipe that is not for a causal language model."""
        if config.closed_book:
            raise SettingInvalid(setting="--closed-book", reason="a causal checkpoint has none")
        if config.joint.silence:
            raise SettingInvalid(setting="joint.silence", reason="it is for a BART or T5; a causal checkpoint takes 0")
        stages = [stage for stage in (config.reading, config.joint) if stage.steps]
        if config.generator_lora is None and any(not set(stage.freeze) >= GENERATOR_PARTS for stage in stages):
            raise SettingInvalid(
                setting="--generator-lora",
                reason="a causal language model is trained by LoRA: give its rank, or --freeze generator",
            )
        if any(WORD_EMBEDDINGS not in stage.freeze for stage in stages):
            raise SettingInvalid(
                setting="--train-embeddings", reason="those of a causal language model stay as they are"
            )

    def models(self, dimension: int, lora: int | None = None) -> RagModels:
        """As of any base; the generator gets LoRA of rank `lora`."""
        facts = read_facts(self.folder)
        generator = read_auto(AutoModelForCausalLM, self.folder / GENERATOR, torch.float32)
        if lora is not None:
            add_lora(generator, lora)
        encoder = read_question_encoder(self.folder / QUESTION_ENCODER, torch.float32)
        wording = CausalWording.of(
            facts.name,
            self.generator_tokenizer(),
            CausalPrompt.parse(facts.prompt),
            ends=generator.generation_config.eos_token_id,
            positions=self.positions,
        )
        return RagModels(encoder.model, generator, encoder.tokenizer, wording, self.prior)

    def generator_tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self.folder / GENERATOR, trust_remote_code=False)

    def trained(self, generator: PreTrainedModel) -> dict[str, Tensor]:
        """LoRA alone: nothing else of a language model is trained."""
        return lora_state(generator)

    def load_trained(self, generator: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
        generator.load_state_dict(state, strict=False)

    def save(self, folder: Path, models: RagModels, config: TrainingConfig, passage_encoder: PassageEncoder) -> None:
        """Write a whole checkpoint: the base's parts, and those that were trained."""
        save_causal(folder, models, self.folder, name=config.name)

    @property
    def has_question_encoder(self) -> bool:
        return True


def is_causal(folder: Path | None) -> bool:
    """Whether the folder is a causal checkpoint."""
    return kind_of(folder) == "causal"


def open_base(folder: Path | None, *, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...] = ()) -> Base:
    """The base in `folder`, of any kind. Raises what `find_base` raises."""
    if folder is None or not is_causal(folder):
        return find_base(folder, passage_encoder=passage_encoder, decoder_layers=decoder_layers)
    if decoder_layers:
        raise SourceInvalid(source=folder, reason="it has a decoder, so decoder layers cannot be chosen")
    questions = folder / QUESTION_ENCODER
    config = read_object(questions / "config.json") if (questions / "config.json").is_file() else {}
    if (questions / "modules.json").is_file() or config.get("model_type") != "dpr":
        raise SourceInvalid(
            source=folder,
            reason="its question encoder is no DPRQuestionEncoder, and no other is trained here: compose it with that "
            "of a RAG checkpoint, such as --question-encoder openbook-mini",
        )
    check_passage_encoder(folder, {"question_encoder": config}, passage_encoder)
    return CausalBase("generator", folder, read_object(folder / GENERATOR / "config.json"))


def save_causal(folder: Path, models: RagModels, base: Path, *, name: str) -> None:
    """Write the causal checkpoint that training made of the one in folder `base`."""
    folder.mkdir(parents=True, exist_ok=True)
    # tokenizers, templates, and what was not trained
    for part in (GENERATOR, QUESTION_ENCODER):
        shutil.copytree(base / part, folder / part, dirs_exist_ok=True)
    if lora_parameters(models.generator):
        for weights in (folder / GENERATOR).glob("*.safetensors*"):
            weights.unlink()
        stored = getattr(torch, read_object(base / GENERATOR / "config.json").get("dtype") or "float32")
        merged(models.generator).to(stored).save_pretrained(folder / GENERATOR)
    models.question_encoder.save_pretrained(folder / QUESTION_ENCODER)
    generation_of(models.generator).save_pretrained(folder)
    facts = json.loads((base / FACTS_FILE).read_text(encoding="utf-8"))
    kept = {key: value for key, value in facts.items() if key not in CALIBRATED}
    if models.prior.bm25:
        kept["prior"] = asdict(models.prior)
    write_json(folder / FACTS_FILE, {**kept, "name": name})
