"""Where training begins: a BERT-like encoder, a generator that writes already, or a whole checkpoint."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, DPRQuestionEncoder, PreTrainedModel

from openbook.entities import PriorWeights
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.rag.causal_wording import CausalWording
from openbook.rag.checkpoint import (
    ADAPTER,
    FACTS_FILE,
    GENERATOR,
    GENERATOR_TOKENIZER,
    QUESTION_TOKENIZER,
    load_checkpoint,
    question_encoder_of,
    read_facts,
)
from openbook.rag.encoder_head import read_question_encoder
from openbook.rag.weights import read_causal
from openbook.rag.wording import QUESTION_SEPARATOR, TITLE_SEPARATOR, Wording
from openbook_lab.training.causal import AnyWording
from openbook_lab.training.libraries import DENSE
from openbook_lab.training.lora import add_lora
from openbook_lab.training.recipe import GENERATOR as GENERATOR_PARTS
from openbook_lab.training.recipe import WORD_EMBEDDINGS, TrainingConfig
from openbook_lab.training.warm_start import ENCODERS, warm_start_generator, warm_start_question_encoder

GENERATORS = ("bart", "t5")
QUESTION_WORDS = "question_encoder.bert_model.embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True)
class RagModels:
    """Question encoder and generator, each with its tokenizer; the generator's is in its wording.

    `prior` weighs inner products and BM25 in what passages are retrieved by, and in the logits of p(z | x).
    """

    question_encoder: DPRQuestionEncoder
    generator: PreTrainedModel
    question_tokenizer: Any
    wording: AnyWording
    prior: PriorWeights = DENSE


@dataclass(frozen=True, slots=True)
class Base:
    """The folder that training begins with. `config` is its config.json.

    encoder      a BERT-like encoder: generator and question encoder are warm-started from it
    generator    a BART or a T5: no warm start; the question encoder begins as the passage encoder
    checkpoint   a RAG folder: its generator and its question encoder, which knows its passage encoder already
    causal       the same with a causal language model; `config` is its generator's
    """

    kind: Literal["encoder", "generator", "checkpoint", "causal"]
    folder: Path
    config: Mapping[str, Any]
    decoder_layers: tuple[int, ...] = ()

    def check(self, config: TrainingConfig) -> None:
        """Raises SettingInvalid for a recipe that is not for this base."""
        if self.kind != "causal":
            if config.generator_lora is not None:
                raise SettingInvalid(
                    setting="--generator-lora",
                    reason="it is for a causal language model: name as --base what openbook checkpoint compose made",
                )
            return
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

    @property
    def has_question_encoder(self) -> bool:
        return self.kind in ("checkpoint", "causal")

    def models(self, dimension: int, lora: int | None = None) -> RagModels:
        """Both models in float32; the question encoder makes vectors of `dimension`.

        A causal generator gets LoRA of rank `lora`, or what its checkpoint has already.
        """
        if self.kind == "causal":
            return self._causal_models(lora)
        tokenizer_folder = self.folder
        if self.kind == "checkpoint":
            tokenizer_folder = self.folder / QUESTION_TOKENIZER
            checkpoint = load_checkpoint(self.folder)
            question_encoder, generator = checkpoint.question_encoder, checkpoint.generator
            # both models may share one package's tensor there; here each has its own
            words = question_encoder.get_parameter(QUESTION_WORDS)
            words.data = words.data.clone()
        elif self.kind == "generator":
            tokenizer_folder = minilm_folder()
            generator = AutoModelForSeq2SeqLM.from_pretrained(self.folder, dtype="float32", trust_remote_code=False)
            question_encoder = warm_start_question_encoder(minilm_folder(), dimension=dimension)
        else:
            question_encoder = warm_start_question_encoder(self.folder, dimension=dimension)
            generator = warm_start_generator(self.folder, decoder_layers=self.decoder_layers)
        wording = Wording.of(
            generator,
            self.generator_tokenizer(),
            title_sep=self.config.get("title_sep", TITLE_SEPARATOR),
            doc_sep=self.config.get("doc_sep", QUESTION_SEPARATOR),
        )
        return RagModels(
            question_encoder,
            generator,
            AutoTokenizer.from_pretrained(tokenizer_folder, trust_remote_code=False),
            wording,
            self.prior,
        )

    @property
    def prior(self) -> PriorWeights:
        """The weights of a checkpoint's own retriever, which joint training searches with too."""
        if not self.has_question_encoder:
            return DENSE
        facts = read_facts(self.folder)
        return facts.prior or PriorWeights(dense=facts.prior_scale, bm25=0.0)

    def _causal_models(self, lora: int | None) -> RagModels:
        facts = read_facts(self.folder)
        base = self.folder if facts.adapts is None else facts.adapts.find(self.folder)
        assert facts.prompt is not None, "a causal checkpoint has a prompt"
        generator = read_causal(base / GENERATOR, torch.float32)
        adapter = self.folder / ADAPTER
        if adapter.is_dir() or lora is not None:
            add_lora(generator, lora, adapter if adapter.is_dir() else None)
        encoder = read_question_encoder(question_encoder_of(self.folder, base), torch.float32)
        ends = generator.generation_config.eos_token_id
        wording = CausalWording.of(
            facts.name,
            AutoTokenizer.from_pretrained(base / GENERATOR, trust_remote_code=False),
            facts.prompt,
            ends=[ends] if isinstance(ends, int) else list(ends or ()),
            positions=self.positions,
        )
        return RagModels(encoder.model, generator, encoder.tokenizer, wording, self.prior)

    def generator_tokenizer(self) -> Any:
        if self.kind == "causal":
            facts = read_facts(self.folder)
            base = self.folder if facts.adapts is None else facts.adapts.find(self.folder)
            return AutoTokenizer.from_pretrained(base / GENERATOR, trust_remote_code=False)
        if self.kind == "checkpoint":
            generator = AutoConfig.for_model(**self.config["generator"])
            return AutoTokenizer.from_pretrained(
                self.folder / GENERATOR_TOKENIZER, config=generator, trust_remote_code=False
            )
        return AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)

    @property
    def positions(self) -> int | None:
        """How many tokens the generator can read; None where positions are relative (T5)."""
        if self.kind == "encoder":
            return int(self.config["max_position_embeddings"]) - ENCODERS[self.config["model_type"]]
        generator = self.config["generator"] if self.kind == "checkpoint" else self.config
        positions: int | None = generator.get("max_position_embeddings")
        return positions


def is_causal(folder: Path | None) -> bool:
    """Whether the folder is a causal checkpoint."""
    facts = None if folder is None else folder / FACTS_FILE
    return facts is not None and facts.is_file() and _json(facts).get("kind") == "causal"


def find_base(folder: Path | None, *, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...] = ()) -> Base:
    """The base in `folder`; without one, all-MiniLM-L6-v2 from its package.

    Raises SourceInvalid for a folder without a base, or with one that cannot be trained, before it reads any weight.
    """
    if folder is None:
        return Base("encoder", minilm_folder(), _json(minilm_folder() / "config.json"), decoder_layers)
    if not folder.is_dir():
        raise SourceInvalid(source=folder, reason="there is no such folder; --base takes a folder, no name on a hub")
    if is_causal(folder):
        return _find_causal(folder, passage_encoder, decoder_layers)
    config = _json(folder / "config.json")
    kind = config.get("model_type")
    if kind != "rag" and not any(folder.glob("tokenizer*")) and not (folder / "vocab.txt").is_file():
        raise SourceInvalid(source=folder, reason="it holds no tokenizer")
    if decoder_layers and kind in ("rag", *GENERATORS):
        raise SourceInvalid(source=folder, reason="it has a decoder, so decoder layers cannot be chosen")
    generator = config.get("generator", {}).get("model_type") if kind == "rag" else kind
    if (kind == "rag" or config.get("is_encoder_decoder")) and generator not in GENERATORS:
        raise SourceInvalid(
            source=folder,
            reason=f"a generator of type {generator!r} is not trained here; those that are: {', '.join(GENERATORS)}",
        )
    if kind == "rag":
        _check_passage_encoder(folder, config, passage_encoder)
        return Base("checkpoint", folder, config)
    if kind in GENERATORS:
        return Base("generator", folder, config)
    if kind not in ENCODERS:
        raise SourceInvalid(
            source=folder,
            reason=f"an encoder of type {kind!r} is not built as BART's is; those that are: {', '.join(ENCODERS)}",
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise SourceInvalid(source=folder, reason="a BERT with absolute positions is needed")
    if config.get("is_decoder"):
        raise SourceInvalid(source=folder, reason="it is a decoder, and an encoder is needed")
    return Base("encoder", folder, config, decoder_layers)


def _find_causal(folder: Path, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...]) -> Base:
    """A folder that `openbook checkpoint compose` wrote, or that was trained from one."""
    if decoder_layers:
        raise SourceInvalid(source=folder, reason="it has a decoder, so decoder layers cannot be chosen")
    facts = read_facts(folder)
    root = folder if facts.adapts is None else facts.adapts.find(folder)
    questions = question_encoder_of(folder, root)
    config = _json(questions / "config.json") if (questions / "config.json").is_file() else {}
    if (questions / "modules.json").is_file() or config.get("model_type") != "dpr":
        raise SourceInvalid(
            source=folder,
            reason="its question encoder is no DPRQuestionEncoder, and no other is trained here: compose it with that "
            "of a RAG checkpoint, such as --question-encoder openbook-mini",
        )
    _check_passage_encoder(folder, {"question_encoder": config}, passage_encoder)
    return Base("causal", folder, _json(root / GENERATOR / "config.json"))


def _check_passage_encoder(folder: Path, config: Mapping[str, Any], passage_encoder: PassageEncoder) -> None:
    questions = config.get("question_encoder", {})
    dimension = questions.get("projection_dim") or questions.get("hidden_size")
    if dimension != passage_encoder.dimension:
        raise SourceInvalid(
            source=folder,
            reason=f"its question encoder makes vectors of {dimension} dimensions, "
            f"the passage encoder {passage_encoder.name} of {passage_encoder.dimension}",
        )
    facts = folder / FACTS_FILE
    known = (_json(facts).get("passage_encoder") or {}) if facts.is_file() else {}
    if known.get("fingerprint") not in (None, passage_encoder.fingerprint):
        raise SourceInvalid(
            source=folder,
            reason=f"its questions are asked of vectors of {known.get('name')}, "
            f"and {passage_encoder.name} encodes the passages here",
        )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise SourceInvalid(source=path, reason="not a JSON object")
    return content
