"""A causal language model as the base of a training: by LoRA, or with its generator left as it is."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.adapter import pin
from openbook.rag.causal_wording import CausalWording
from openbook.rag.checkpoint import ADAPTER, FACTS_FILE, GENERATOR, QUESTION_ENCODER, question_encoder_of, read_facts
from openbook.rag.encoder_head import read_question_encoder
from openbook.rag.weights import read_causal
from openbook_lab.training.averaging import CALIBRATED
from openbook_lab.training.base import Base, check_passage_encoder, find_base, kind_of, read_object
from openbook_lab.training.lora import add_lora, lora_parameters, lora_state, save_lora
from openbook_lab.training.models import RagModels
from openbook_lab.training.recipe import GENERATOR as GENERATOR_PARTS
from openbook_lab.training.recipe import WORD_EMBEDDINGS, TrainingConfig
from openbook_lab.training.weights import generation_of, write_json


class CausalBase(Base):
    """A folder that `openbook checkpoint compose` wrote, or that was trained from one; `config` is its generator's."""

    __slots__ = ()

    def check(self, config: TrainingConfig) -> None:
        """Raises SettingInvalid for a recipe that is not for a causal language model."""
        if config.closed_book:
            raise SettingInvalid(setting="--closed-book", reason="a causal checkpoint has none")
        if config.joint.silence:
            raise SettingInvalid(setting="joint.silence", reason="it is for a BART or T5; a causal checkpoint takes 0")
        is_trained = config.generator_lora is not None or (self.folder / ADAPTER).is_dir()
        stages = [stage for stage in (config.reading, config.joint) if stage.steps]
        if not is_trained and any(not set(stage.freeze) >= GENERATOR_PARTS for stage in stages):
            raise SettingInvalid(
                setting="--generator-lora",
                reason="a causal language model is trained by LoRA: give its rank, or --freeze generator",
            )
        if any(WORD_EMBEDDINGS not in stage.freeze for stage in stages):
            raise SettingInvalid(
                setting="--train-embeddings", reason="those of a causal language model stay as they are"
            )

    def models(self, dimension: int, lora: int | None = None) -> RagModels:
        """As of any base; the generator gets LoRA of rank `lora`, or what its checkpoint has already."""
        facts, base = read_facts(self.folder), self._root
        assert facts.prompt is not None, "a causal checkpoint has a prompt"
        generator = read_causal(base / GENERATOR, torch.float32)
        adapter = self.folder / ADAPTER
        if adapter.is_dir() or lora is not None:
            add_lora(generator, lora, adapter if adapter.is_dir() else None)
        encoder = read_question_encoder(question_encoder_of(self.folder, base), torch.float32)
        ends = generator.generation_config.eos_token_id
        wording = CausalWording.of(
            facts.name,
            self.generator_tokenizer(),
            facts.prompt,
            ends=[ends] if isinstance(ends, int) else list(ends or ()),
            positions=self.positions,
        )
        return RagModels(encoder.model, generator, encoder.tokenizer, wording, self.prior)

    def generator_tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self._root / GENERATOR, trust_remote_code=False)

    def trained(self, generator: PreTrainedModel) -> dict[str, Tensor]:
        """LoRA alone: nothing else of a language model is trained."""
        return lora_state(generator)

    def load_trained(self, generator: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
        generator.load_state_dict(state, strict=False)

    def save(self, folder: Path, models: RagModels, config: TrainingConfig, passage_encoder: PassageEncoder) -> None:
        """Write what differs from the base."""
        joint = config.joint.steps and "question-encoder" not in config.joint.freeze
        trained = bool(joint or config.retrieval.steps)
        save_adapted(folder, models, self.folder, name=config.name, place=config.output, trained=trained)

    @property
    def has_question_encoder(self) -> bool:
        return True

    @property
    def _root(self) -> Path:
        """The folder of the language model's own weights."""
        facts = read_facts(self.folder)
        return self.folder if facts.adapts is None else facts.adapts.find(self.folder)


def is_causal(folder: Path | None) -> bool:
    """Whether the folder is a causal checkpoint."""
    return kind_of(folder) == "causal"


def open_base(folder: Path | None, *, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...] = ()) -> Base:
    """The base in `folder`, of any kind. Raises what `find_base` raises."""
    if folder is None or not is_causal(folder):
        return find_base(folder, passage_encoder=passage_encoder, decoder_layers=decoder_layers)
    if decoder_layers:
        raise SourceInvalid(source=folder, reason="it has a decoder, so decoder layers cannot be chosen")
    facts = read_facts(folder)
    root = folder if facts.adapts is None else facts.adapts.find(folder)
    questions = question_encoder_of(folder, root)
    config = read_object(questions / "config.json") if (questions / "config.json").is_file() else {}
    if (questions / "modules.json").is_file() or config.get("model_type") != "dpr":
        raise SourceInvalid(
            source=folder,
            reason="its question encoder is no DPRQuestionEncoder, and no other is trained here: compose it with that "
            "of a RAG checkpoint, such as --question-encoder openbook-mini",
        )
    check_passage_encoder(folder, {"question_encoder": config}, passage_encoder)
    return CausalBase("generator", folder, read_object(root / GENERATOR / "config.json"))


def save_adapted(folder: Path, models: RagModels, base: Path, *, name: str, place: Path, trained: bool) -> None:
    """Write what differs from the causal checkpoint in folder `base`, and where that is as seen from `place`.

    The question encoder is written where it was `trained`, now or before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = json.loads((base / FACTS_FILE).read_text(encoding="utf-8"))
    root = read_facts(base).adapts
    origin = base if root is None else root.find(base)
    if lora_parameters(models.generator):
        save_lora(models.generator, folder / ADAPTER)
    generation_of(models.generator).save_pretrained(folder)
    own = base / QUESTION_ENCODER
    if trained:
        models.question_encoder.save_pretrained(folder / QUESTION_ENCODER)
        models.question_tokenizer.save_pretrained(folder / QUESTION_ENCODER)
    elif root is not None and own.is_dir():
        shutil.copytree(own, folder / QUESTION_ENCODER)
    parts = (GENERATOR,) if (folder / QUESTION_ENCODER).is_dir() else (GENERATOR, QUESTION_ENCODER)
    # a package is found by its name wherever it is installed, a folder by the way to it
    packaged = root is not None and not (base / root.checkpoint).is_dir()
    way = os.path.relpath(origin.resolve(), place.resolve())
    adapts = {"checkpoint": root.checkpoint if root is not None and packaged else way, "sha256": pin(origin, parts)}
    kept = {key: value for key, value in facts.items() if key not in CALIBRATED}
    if models.prior.bm25:
        kept["prior"] = asdict(models.prior)
    write_json(folder / FACTS_FILE, {**kept, "name": name, "adapts": adapts})
