"""A checkpoint out of parts: a language model or a span reader, a question encoder, and the encoder of its passages.

The folder holds everything that serving reads, and appears as a whole or not at all.
"""

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from openbook.entities import PriorWeights
from openbook.errors import CheckpointInvalid, SettingInvalid
from openbook.extensions import checkpoint_folder
from openbook.plugins.generators.prompt import LONGEST_PASSAGE, SHORT_ANSWERS, CausalPrompt
from openbook.rag.checkpoint import FACTS_FILE, GENERATOR, QUESTION_ENCODER, READER, load_checkpoint, read_facts
from openbook.rag.encoder_head import QUESTION_PROMPTS, read_head, read_json
from openbook.rag.hub import find_folder
from openbook.rag.linear import round_weight
from openbook.rag.open_generator import open_generator
from openbook.rag.reader_wording import ReaderFacts
from openbook.rag.retriever import QuestionEncoder
from openbook.rag.weights import SCALES, first_line, quiet, read_reader

# Cosines lie between -1 and 1, mostly near each other: as logits of a prior they need a scale. Unfitted, this one.
SCALE_OF_COSINES = 20.0
# Of a model with this many positions or fewer, the prompt's examples leave shorter passages.
FEW_POSITIONS = 2048
# Of a reader's weights: hosts of git repositories take none above 100 MB.
LARGEST_FILE = "90MB"


@dataclass(frozen=True, slots=True)
class EncoderName:
    """The passage encoder that an index must have been built with, and the length of its vectors."""

    name: str
    fingerprint: str
    dimension: int


@dataclass(frozen=True, slots=True)
class _Brought:
    """What a question encoder brings: the passage encoder that it was trained for, where that is known, a scale, and
    the hybrid prior that was fitted to it."""

    passage_encoder: dict[str, Any] | None
    scale: float
    prior: PriorWeights | None = None


def compose(
    folder: Path,
    *,
    generator: str | None = None,
    reader: str | None = None,
    question_encoder: str,
    passage_encoder: EncoderName | None = None,
    prompt: CausalPrompt | None = None,
    prior_scale: float | None = None,
    name: str | None = None,
    weights: Literal["int8"] | None = None,
    new_head: bool = False,
) -> str:
    """Write a checkpoint to `folder`, which is not there yet, and return its name.

    `generator` is a folder or a hub id of a causal language model; or `reader` is one of a span reader, an
    AutoModelForQuestionAnswering. `question_encoder` is a RAG checkpoint, whose question encoder is taken, or a folder
    or hub id of a sentence-transformers model or a DPRQuestionEncoder.
    With `new_head` the reader may be an encoder without a head: it gets a random one, to be trained.
    With `weights` the reader's are stored in int8, a quarter of their size; without, in the precision that they have.
    Raises CheckpointInvalid for a part that cannot be used, and SettingInvalid for parts that do not belong together.
    """
    if (generator is None) == (reader is None):
        raise SettingInvalid(
            setting="--generator",
            reason="name a language model (--generator) or a span reader (--reader), not both.",
        )
    if reader is not None and prompt is not None:
        raise SettingInvalid(setting="--prompt", reason="a span reader takes no prompt.")
    if reader is None and weights is not None:
        raise SettingInvalid(setting="--weights", reason="the weights of a span reader alone are stored in int8.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # beside its place, so that a rename moves it
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        positions = _write_generator(generator, made / GENERATOR) if generator is not None else None
        if reader is not None:
            _write_reader(reader, made / READER, weights, new_head)
        brought = _write_question_encoder(question_encoder, made / QUESTION_ENCODER)
        named = brought.passage_encoder
        if passage_encoder is not None:
            if named is not None and named["fingerprint"] != passage_encoder.fingerprint:
                raise SettingInvalid(
                    setting="--passage-encoder",
                    reason=f"{question_encoder} was trained for {named['name']}, not for {passage_encoder.name}.",
                )
            named = {"name": passage_encoder.name, "fingerprint": passage_encoder.fingerprint}
        facts = {
            "format": 1,
            "name": name or folder.name,
            "kind": "causal" if reader is None else "reader",
            "prior_scale": prior_scale or brought.scale,
            "passage_encoder": named,
        }
        if reader is None:
            facts["prompt"] = (prompt or _usual_prompt(made / GENERATOR, positions)).content()
        else:
            # RAG-Sequence is exact under a reader and holds on to the passage that began the answer
            facts |= {"model": "sequence", "reader": asdict(ReaderFacts())}
            if brought.prior is not None:
                facts["prior"] = asdict(brought.prior)
        if named is None:
            del facts["passage_encoder"]
        (made / FACTS_FILE).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        composed = _check(made, passage_encoder)
        if folder.is_dir():
            folder.rmdir()
        made.chmod(0o755)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return composed


def names_its_passage_encoder(question_encoder: str) -> bool:
    """True of a checkpoint that says which passage encoder its question encoder was trained for."""
    facts: dict[str, Any] = read_json(_find(question_encoder), FACTS_FILE, missing={})
    return bool((facts.get("passage_encoder") or {}).get("fingerprint"))


def _find(source: str) -> Path:
    packaged = checkpoint_folder(source) if not Path(source).is_dir() else None
    return packaged or find_folder(source)


def _check(folder: Path, passage_encoder: EncoderName | None) -> str:
    """Load what was written as serving does. Returns its name."""
    checkpoint = load_checkpoint(folder, dtype="auto")
    open_generator(checkpoint)
    dimension = QuestionEncoder(checkpoint).dimension
    if passage_encoder is not None and passage_encoder.dimension != dimension:
        raise SettingInvalid(
            setting="--passage-encoder",
            reason=f"{passage_encoder.name} makes vectors of {passage_encoder.dimension} dimensions, the question "
            f"encoder of {dimension}.",
        )
    return checkpoint.name


def _write_generator(source: str, folder: Path) -> int | None:
    """The model and its tokenizer, in the precision that it has. Returns its positions."""
    if source.endswith(".gguf"):
        raise SettingInvalid(
            setting="--generator",
            reason="a GGUF file is run by llama-server or Ollama: openbook serve --generator http://host:port/v1",
        )
    found = find_folder(source)
    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                found, local_files_only=True, trust_remote_code=False, dtype="auto", weights_only=True
            )
            tokenizer = AutoTokenizer.from_pretrained(found, local_files_only=True, trust_remote_code=False)
            ends = [model.generation_config.eos_token_id, model.config.get_text_config().eos_token_id]
            ends.append(tokenizer.eos_token_id)
            # the rest of it tells transformers how to sample, and some of it cannot be saved
            model.generation_config = GenerationConfig(eos_token_id=_flat(ends))
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:  # the readers of so many formats raise anything
        raise CheckpointInvalid(checkpoint=source, reason=f"as a generator: {first_line(error)}") from error
    positions: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return positions


def _write_reader(source: str, folder: Path, weights: Literal["int8"] | None, new_head: bool) -> None:
    """The model and its tokenizer."""
    found = _find(source)
    model = read_reader(found, "auto", new_head=new_head)
    model.save_pretrained(
        folder, state_dict=_in_int8(model) if weights == "int8" else None, max_shard_size=LARGEST_FILE
    )
    try:
        AutoTokenizer.from_pretrained(found, local_files_only=True, trust_remote_code=False).save_pretrained(folder)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointInvalid(checkpoint=source, reason=f"as a reader: {first_line(error)}") from error


def _in_int8(model: PreTrainedModel) -> dict[str, Tensor]:
    """Its tensors, with the products and the words below its head in int8, as `openbook.rag.weights` reads them."""
    tensors: dict[str, Tensor] = model.state_dict()
    below, words = set(model.base_model.modules()), model.get_input_embeddings()
    for name, module in model.named_modules():
        if module in below and (isinstance(module, nn.Linear) or module is words):
            weight = f"{name}.weight"
            tensors[weight], tensors[weight + SCALES] = round_weight(tensors[weight])
    return tensors


def _flat(ends: list[Any]) -> list[int]:
    """Every end-of-sequence token once; each of `ends` is one, several or none."""
    listed = [of_part if isinstance(of_part, list) else [of_part] for of_part in ends]
    return list(dict.fromkeys(one for of_part in listed for one in of_part if one is not None))


def _write_question_encoder(source: str, folder: Path) -> _Brought:
    found = _find(source)
    if not (found / "modules.json").is_file():
        # a checkpoint with a reader may leave its question encoder to another
        points = (found / FACTS_FILE).is_file() and read_facts(found).reader is not None
        kind = "rag" if points else read_json(found, "config.json").get("model_type")
        if kind == "rag":
            checkpoint = load_checkpoint(found)
            checkpoint.question_encoder.save_pretrained(folder)
            checkpoint.question_tokenizer.save_pretrained(folder)
            facts = checkpoint.facts
            named = {"name": facts.encoder_name, "fingerprint": facts.encoder_fingerprint}
            # it was trained with this scale
            return _Brought(named if facts.encoder_fingerprint else None, facts.prior_scale, facts.prior)
        if kind != "dpr":
            raise CheckpointInvalid(
                checkpoint=source,
                reason="as a question encoder: neither a RAG checkpoint, nor a sentence-transformers model, nor a "
                "DPRQuestionEncoder.",
            )
        normalised = False
    else:
        normalised = read_head(found, QUESTION_PROMPTS)[1].normalise
    # the same model for other runtimes is not needed
    shutil.copytree(found, folder, ignore=shutil.ignore_patterns("onnx", "openvino", "*.h5", "*.msgpack", "*.ot", ".*"))
    return _Brought(None, SCALE_OF_COSINES if normalised else 1.0)


def _usual_prompt(generator: Path, positions: int | None) -> CausalPrompt:
    """Short answers: as a chat where the tokenizer has a template for one, else as a text to be continued."""
    tokenizer = AutoTokenizer.from_pretrained(generator, local_files_only=True, trust_remote_code=False)
    longest = LONGEST_PASSAGE if positions is None or positions > FEW_POSITIONS else LONGEST_PASSAGE // 2
    prompt = replace(SHORT_ANSWERS, longest_passage=longest)
    if tokenizer.chat_template is not None:
        return replace(prompt, chat=True)
    return replace(prompt, user=f"{prompt.user}\n", opening="Answer: ")
