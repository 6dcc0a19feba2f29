"""Where training begins and ends: a BERT-like encoder, a generator that writes already, or a whole checkpoint."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

from openbook.entities import PriorWeights
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.rag.checkpoint import (
    FACTS_FILE,
    GENERATOR_TOKENIZER,
    QUESTION_TOKENIZER,
    load_checkpoint,
    read_facts,
)
from openbook.rag.wording import QUESTION_SEPARATOR, TITLE_SEPARATOR, Wording
from openbook_lab.training.libraries import DENSE
from openbook_lab.training.models import RagModels
from openbook_lab.training.recipe import TrainingConfig
from openbook_lab.training.warm_start import ENCODERS, warm_start_generator, warm_start_question_encoder

GENERATORS = ("bart", "t5")
QUESTION_WORDS = "question_encoder.bert_model.embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True)
class Base:
    """The folder that training begins with. `config` is its config.json.

    encoder      a BERT-like encoder: generator and question encoder are warm-started from it
    generator    a BART or a T5: no warm start; the question encoder begins as the passage encoder
    checkpoint   a RAG folder: its generator and its question encoder, which knows its passage encoder already
    """

    kind: Literal["encoder", "generator", "checkpoint"]
    folder: Path
    config: Mapping[str, Any]
    decoder_layers: tuple[int, ...] = ()

    def check(self, config: TrainingConfig) -> None:
        """Raises SettingInvalid for a recipe that is not for this base."""
        if config.teacher is not None:
            raise SettingInvalid(setting="--teacher", reason="it teaches span readers alone")

    @property
    def has_question_encoder(self) -> bool:
        return self.kind == "checkpoint"

    def models(self, dimension: int) -> RagModels:
        """Both models in float32; the question encoder makes vectors of `dimension`."""
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

    def generator_tokenizer(self) -> Any:
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


def find_base(folder: Path | None, *, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...] = ()) -> Base:
    """The base in `folder`; without one, all-MiniLM-L6-v2 from its package.

    Raises SourceInvalid for a folder without a base, or with one that cannot be trained, before it reads any weight.
    """
    if folder is None:
        return Base("encoder", minilm_folder(), read_object(minilm_folder() / "config.json"), decoder_layers)
    if not folder.is_dir():
        raise SourceInvalid(source=folder, reason="there is no such folder; --base takes a folder, no name on a hub")
    if kind_of(folder) == "causal":
        raise SourceInvalid(
            source=folder,
            reason="a language model is not trained here: train it by peft, merge it, and compose it anew",
        )
    config = read_object(folder / "config.json")
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
        check_passage_encoder(folder, config, passage_encoder)
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


def check_passage_encoder(folder: Path, config: Mapping[str, Any], passage_encoder: PassageEncoder) -> None:
    """Raises SourceInvalid where the folder's question encoder is not for the vectors of this passage encoder."""
    questions = config.get("question_encoder", {})
    dimension = questions.get("projection_dim") or questions.get("hidden_size")
    if dimension != passage_encoder.dimension:
        raise SourceInvalid(
            source=folder,
            reason=f"its question encoder makes vectors of {dimension} dimensions, "
            f"the passage encoder {passage_encoder.name} of {passage_encoder.dimension}",
        )
    facts = folder / FACTS_FILE
    known = (read_object(facts).get("passage_encoder") or {}) if facts.is_file() else {}
    if known.get("fingerprint") not in (None, passage_encoder.fingerprint):
        raise SourceInvalid(
            source=folder,
            reason=f"its questions are asked of vectors of {known.get('name')}, "
            f"and {passage_encoder.name} encodes the passages here",
        )


def kind_of(folder: Path | None) -> str | None:
    """The kind that the folder's openbook.json names, such as causal or reader."""
    facts = None if folder is None else folder / FACTS_FILE
    return None if facts is None or not facts.is_file() else read_object(facts).get("kind")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises SourceInvalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise SourceInvalid(source=path, reason="not a JSON object")
    return content
