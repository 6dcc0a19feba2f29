"""Where training begins: a BERT-like encoder, a generator that can write already, or a whole RAG checkpoint."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers import (
    AutoConfig,
    AutoTokenizer,
    BartForConditionalGeneration,
    DPRQuestionEncoder,
    PreTrainedModel,
    T5ForConditionalGeneration,
)

from openbook.errors import SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder, minilm_folder
from openbook.rag.checkpoint import GENERATOR_TOKENIZER, QUESTION_TOKENIZER, load_checkpoint
from openbook.rag.wording import QUESTION_SEPARATOR, TITLE_SEPARATOR, Wording
from openbook_lab.training.warm_start import (
    check_encoder,
    positions_of,
    warm_start_generator,
    warm_start_question_encoder,
)
from openbook_lab.training.weights import PackagedWeights, minilm_weights

GENERATORS: dict[str, type[PreTrainedModel]] = {"bart": BartForConditionalGeneration, "t5": T5ForConditionalGeneration}

QUESTION_WORDS = "question_encoder.bert_model.embeddings.word_embeddings.weight"

BaseKind = Literal["encoder", "generator", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Base:
    """What training goes on from.

    encoder      a BERT-like encoder: generator and question encoder are warm-started from it
    generator    a BART or a T5: no warm start; the question encoder begins as the passage encoder
    checkpoint   a RAG folder: its generator and its question encoder, which knows its passage encoder already
    """

    kind: BaseKind
    folder: Path
    decoder_layers: tuple[int, ...] = ()

    @property
    def brings_question_encoder(self) -> bool:
        return self.kind == "checkpoint"

    @property
    def package(self) -> PackagedWeights:
        """The package whose weights may still be in what was trained: the passage encoder's."""
        return minilm_weights()

    def models(self, dimension: int) -> tuple[DPRQuestionEncoder, PreTrainedModel]:
        """Both models in float32; the question encoder makes vectors of `dimension`."""
        if self.kind == "checkpoint":
            checkpoint = load_checkpoint(self.folder)
            # what both models take from one package's file is one tensor there, and two from here on
            words = checkpoint.question_encoder.get_parameter(QUESTION_WORDS)
            words.data = words.data.clone()
            return checkpoint.question_encoder, checkpoint.generator
        if self.kind == "generator":
            kind = GENERATORS[_config(self.folder)["model_type"]]
            generator = kind.from_pretrained(self.folder, dtype="float32")
            return warm_start_question_encoder(minilm_folder(), dimension=dimension), generator
        return (
            warm_start_question_encoder(self.folder, dimension=dimension),
            warm_start_generator(self.folder, decoder_layers=self.decoder_layers),
        )

    def question_tokenizer(self) -> Any:
        if self.kind == "checkpoint":
            return AutoTokenizer.from_pretrained(self.folder / QUESTION_TOKENIZER)
        return AutoTokenizer.from_pretrained(minilm_folder() if self.kind == "generator" else self.folder)

    def generator_tokenizer(self) -> Any:
        if self.kind == "checkpoint":
            generator = AutoConfig.for_model(**_config(self.folder)["generator"])
            return AutoTokenizer.from_pretrained(self.folder / GENERATOR_TOKENIZER, config=generator)
        return AutoTokenizer.from_pretrained(self.folder)

    @property
    def positions(self) -> int | None:
        """How many tokens the generator can read; None where positions are relative (T5)."""
        config = _config(self.folder)
        if self.kind == "encoder":
            return positions_of(config)
        positions: int | None = (config["generator"] if self.kind == "checkpoint" else config).get(
            "max_position_embeddings"
        )
        return positions

    def wording(self, generator: PreTrainedModel) -> Wording:
        """How `generator`, which is this base's, is spoken to."""
        if self.kind == "checkpoint":
            config = _config(self.folder)
            return Wording.of(
                generator,
                self.generator_tokenizer(),
                title_sep=config.get("title_sep", TITLE_SEPARATOR),
                doc_sep=config.get("doc_sep", QUESTION_SEPARATOR),
            )
        return Wording.of(generator, self.generator_tokenizer())


def find_base(folder: Path | None, *, passage_encoder: PassageEncoder, decoder_layers: tuple[int, ...] = ()) -> Base:
    """The base that lies in `folder`; without one, all-MiniLM-L6-v2 from its package.

    Raises SourceInvalid for a folder that holds none or one that cannot be trained, before any weight is read.
    """
    if folder is None:
        return Base("encoder", minilm_folder(), decoder_layers)
    if not folder.is_dir():
        raise SourceInvalid(source=folder, reason="there is no such folder; --base takes a folder, no name on a hub")
    config = _config(folder)
    kind = config.get("model_type")
    if kind != "rag" and not any(folder.glob("tokenizer*")) and not (folder / "vocab.txt").is_file():
        raise SourceInvalid(source=folder, reason="it holds no tokenizer")
    if decoder_layers and (kind == "rag" or kind in GENERATORS):
        raise SourceInvalid(source=folder, reason="it has a decoder, so decoder layers cannot be chosen")
    if kind == "rag":
        generator = config.get("generator", {}).get("model_type")
        if generator not in GENERATORS:
            raise SourceInvalid(source=folder, reason=_no_generator(generator))
        _check_passage_encoder(folder, config, passage_encoder)
        return Base("checkpoint", folder)
    if kind in GENERATORS:
        return Base("generator", folder)
    if config.get("is_encoder_decoder"):
        raise SourceInvalid(source=folder, reason=_no_generator(kind))
    check_encoder(folder, config)
    return Base("encoder", folder, decoder_layers)


def _no_generator(kind: object) -> str:
    return f"a generator of type {kind!r} is not trained here; those that are: {', '.join(GENERATORS)}"


def _check_passage_encoder(folder: Path, config: dict[str, Any], passage_encoder: PassageEncoder) -> None:
    questions = config.get("question_encoder", {})
    dimension = questions.get("projection_dim") or questions.get("hidden_size")
    if dimension != passage_encoder.dimension:
        raise SourceInvalid(
            source=folder,
            reason=f"its question encoder makes vectors of {dimension} dimensions, "
            f"the passage encoder {passage_encoder.name} of {passage_encoder.dimension}",
        )
    facts = folder / "openbook.json"
    known = (_json(facts).get("passage_encoder") or {}) if facts.is_file() else {}
    if known.get("fingerprint") not in (None, passage_encoder.fingerprint):
        raise SourceInvalid(
            source=folder,
            reason=f"its questions are asked of vectors of {known.get('name')}, "
            f"and passages are encoded by {passage_encoder.name} here",
        )


def _config(folder: Path) -> dict[str, Any]:
    return _json(folder / "config.json")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceInvalid(source=path, reason=f"cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise SourceInvalid(source=path, reason="not a JSON object")
    return content
