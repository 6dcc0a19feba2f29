"""A Hugging Face RAG folder <-> a Checkpoint.

The layout is the one of transformers' `RagTokenForGeneration.save_pretrained`, and of facebook/rag-token-nq:

    config.json                     RagConfig with both models' configurations in it
    model.safetensors | shards | pytorch_model.bin
    question_encoder_tokenizer/     the question encoder's tokenizer
    generator_tokenizer/            the generator's tokenizer
    generation_config.json          optional: the shortest answer is read from it
    openbook.json                   ours, optional: see `Facts`

A checkpoint with a span reader, which `openbook checkpoint compose --reader` writes:

    openbook.json                   says kind reader, and holds how it reads: see `reader_wording`
    reader/                         an AutoModelForQuestionAnswering with its tokenizer
    question_encoder/               a DPRQuestionEncoder or a sentence-transformers model, with its tokenizer

A folder of any other kind, which its openbook.json names, is loaded by the plug-in of that kind.

A folder may leave out tensors that it took unchanged from a published package; `openbook.json` then names the
package, and they are read from there (`base`). Weights are never unpickled: safetensors, or `weights_only`.
"""

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
import transformers
from pydantic import AfterValidator, AliasPath, ConfigDict, Field, TypeAdapter, ValidationError
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase, RagConfig

from openbook.entities import MarginalKind, PriorWeights
from openbook.errors import CheckpointInvalid, SettingInvalid, first_defect
from openbook.extensions import KINDS, checkpoint_folder, extensions
from openbook.rag.borrowed import Lender
from openbook.rag.encoder_head import Head, TextEncoder, read_question_encoder
from openbook.rag.hub import find_folder
from openbook.rag.linear import auto_type
from openbook.rag.no_answer import NoAnswerWeights
from openbook.rag.reader_wording import ReaderFacts
from openbook.rag.weights import BaseTensors, first_line, read_bare_models, read_models, read_reader
from openbook.settings import DEFAULT_CHECKPOINTS
from openbook.storage.durable import sha256_of

if TYPE_CHECKING:
    from openbook.rag.generator import Generator

Dtype = Literal["auto", "float32", "bfloat16", "int8", "float64"]
OWN_KINDS = ("rag", "reader")

FACTS_FILE = "openbook.json"
GENERATION_FILE = "generation_config.json"
QUESTION_TOKENIZER = "question_encoder_tokenizer"
GENERATOR_TOKENIZER = "generator_tokenizer"
# of the folders of other kinds
QUESTION_ENCODER = "question_encoder"
GENERATOR = "generator"
READER = "reader"


def _at(*place: str) -> Any:
    """Where a fact stands in openbook.json."""
    return Field(validation_alias=AliasPath(*place))


def _weighs(prior: PriorWeights) -> PriorWeights:
    if min(prior.dense, prior.bm25) < 0 or not (prior.dense or prior.bm25):
        raise ValueError("needs two weights that are not negative and not both 0")
    return prior


@dataclass(frozen=True, slots=True)
class Facts:
    """What openbook.json says beyond transformers' own files. All of it may be absent.

    `prior`, the weights of the hybrid retriever, belongs here because p(z | x) is a part of the model. `model` answers
    best with this checkpoint. An answer whose `no_answer` is above `max_no_answer` is more likely wrong than right;
    without the weights `no_answer` is p(empty answer | x) itself. `most_docs` passages are read before that is said.
    `prior_scale` multiplies the inner products of the dense retriever. `prompt` is for a plug-in's kind alone, which
    reads it. A reader's folder may leave its `question_encoder` to an installed checkpoint.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    name: str
    kind: str = "rag"
    encoder_name: Annotated[str | None, _at("passage_encoder", "name")] = None
    encoder_fingerprint: Annotated[str | None, _at("passage_encoder", "fingerprint")] = None
    uncased: bool | None = None
    base: BaseTensors | None = None
    prior: Annotated[PriorWeights, AfterValidator(_weighs)] | None = None
    model: MarginalKind | None = None
    max_no_answer: Annotated[float | None, _at("no_answer", "threshold"), Field(ge=0, le=1)] = None
    no_answer: Annotated[NoAnswerWeights | None, _at("no_answer", "weights")] = None
    most_docs: Annotated[int, Field(ge=0, le=50)] = 0
    prior_scale: Annotated[float, Field(gt=0)] = 1.0
    prompt: Any = None
    reader: ReaderFacts | None = None
    question_encoder: Lender | None = None


_FACTS = TypeAdapter(Facts)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Two models in evaluation mode, their tokenizers, and what they are. Nothing in it changes while serving.

    The models are transformers' own, or bare where they were loaded so. With `opens` a plug-in makes the generator,
    whose `prompt` stands around a passage and a question. With a `question_head` the question encoder is a
    sentence-transformers model, else a DPRQuestionEncoder.
    """

    config: RagConfig
    question_encoder: Any
    generator: Any
    question_tokenizer: PreTrainedTokenizerBase
    generator_tokenizer: PreTrainedTokenizerBase
    facts: Facts
    fingerprint: str
    generation: GenerationConfig
    int8: bool = False
    """The generator's products are to be made in int8; its other arithmetic is in the dtype of its weights."""
    prompt: Any = None
    opens: "Callable[[Checkpoint], Generator] | None" = None
    question_head: Head | None = None

    @property
    def name(self) -> str:
        """What an answer calls it: name@fingerprint."""
        return f"{self.facts.name}@{self.fingerprint}"

    def without_generator(self) -> "Checkpoint":
        """The question encoder and the prior, for a generator that is not the checkpoint's own: what was learnt
        together with that one says nothing of another."""
        facts = replace(
            self.facts, uncased=False, model="sequence", max_no_answer=None, no_answer=None, prompt=None, reader=None
        )
        return replace(self, generator=self.question_encoder, facts=facts, prompt=None, opens=None, int8=False)

    @property
    def device(self) -> torch.device:
        return torch.device(self.generator.device)

    @property
    def uncased(self) -> bool:
        """True where the generator's tokenizer folds case, so that an answer's casing must come from its passage."""
        if self.facts.uncased is not None:
            return self.facts.uncased
        return bool(self.generator_tokenizer.tokenize("A") == self.generator_tokenizer.tokenize("a"))


def load_checkpoint(
    source: str | Path,
    *,
    device: str = "cpu",
    dtype: Dtype = "float32",
    prompt: Path | None = None,
    bare: bool = False,
) -> Checkpoint:
    """Load a folder, a checkpoint that a package brings, or a hub id (`owner/name`; only then the network is asked).

    With `bare`, models that serve without transformers' own are loaded so where the folder allows it: in a fraction of
    the time, and they can be neither trained nor saved.
    A kind that has a prompt takes that of the file `prompt` in place of its own. Raises SettingInvalid,
    or CheckpointInvalid and why.
    """
    chosen = choose_device(device)
    folder = locate(source)
    facts = read_facts(folder)
    if facts.kind not in OWN_KINDS:
        loaded: Checkpoint = extensions(KINDS)[facts.kind].load()(folder, facts, chosen, dtype, prompt)
        return loaded
    if prompt is not None:
        raise SettingInvalid(setting="prompt", reason=f"{source} has no language model and reads no prompt.")
    if facts.reader is not None:
        return _load_reader(folder, facts, chosen, dtype, bare)
    config = _read_config(folder)
    kind = choose_dtype(dtype, chosen)
    # what else a generation_config.json is made of, transformers knows
    bare = bare and (folder / GENERATION_FILE).is_file()
    models = (read_bare_models(folder, config, facts.base, kind) if bare else None) or read_models(
        folder, config, facts.base, kind
    )
    return Checkpoint(
        config=config,
        question_encoder=models.question_encoder.to(chosen),
        generator=models.generator.to(chosen),
        question_tokenizer=read_tokenizer(folder, QUESTION_TOKENIZER, config.question_encoder),
        generator_tokenizer=read_tokenizer(folder, GENERATOR_TOKENIZER, config.generator),
        facts=facts,
        fingerprint=fingerprint_of(folder),
        generation=read_generation(folder, models.generation),
        int8=dtype == "int8",
    )


def _load_reader(folder: Path, facts: Facts, device: str, dtype: Dtype, bare: bool) -> Checkpoint:
    """A folder with a span reader."""
    kind = choose_dtype(dtype, device)
    # weights that are stored in int8 are float32 to the digit
    reader = read_reader(folder / READER, torch.float32 if dtype == "int8" else kind).to(device)
    if facts.question_encoder is None:
        encoder = read_question_encoder(folder / QUESTION_ENCODER, kind)
    else:
        named = load_checkpoint(facts.question_encoder.find(folder), device=device, dtype=dtype, bare=True)
        encoder = TextEncoder(named.question_encoder, named.question_tokenizer, named.question_head)
    return Checkpoint(
        config=RagConfig(question_encoder=encoder.model.config.to_dict(), generator=reader.config.to_dict()),
        question_encoder=encoder.model.to(device),
        generator=reader,
        question_tokenizer=encoder.tokenizer,
        generator_tokenizer=read_tokenizer(folder, READER),
        facts=facts,
        fingerprint=fingerprint_of(folder),
        generation=GenerationConfig(),
        int8=dtype == "int8",
        question_head=encoder.head and encoder.head.to(device),
    )


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the whole of it, base tensors included, so that transformers' own classes load the folder.

    Raises SettingInvalid for a checkpoint of another kind, whose folder is whole as it is.
    """
    if checkpoint.facts.kind != "rag":
        raise SettingInvalid(setting="checkpoint", reason=f"the folder of a {checkpoint.facts.kind} is whole: copy it.")
    model = transformers.RagTokenForGeneration(
        config=checkpoint.config,
        # base tensors that both models read from one file share its memory, which is no tie that could be written
        question_encoder=deepcopy(checkpoint.question_encoder),
        generator=checkpoint.generator,
    )
    model.generation_config = checkpoint.generation
    model.save_pretrained(folder)
    checkpoint.question_tokenizer.save_pretrained(folder / QUESTION_TOKENIZER)
    checkpoint.generator_tokenizer.save_pretrained(folder / GENERATOR_TOKENIZER)
    facts: dict[str, Any] = {"format": 1, "name": checkpoint.facts.name, "uncased": checkpoint.uncased}
    if checkpoint.facts.encoder_fingerprint is not None:
        facts["passage_encoder"] = {
            "name": checkpoint.facts.encoder_name,
            "fingerprint": checkpoint.facts.encoder_fingerprint,
        }
    if checkpoint.facts.prior is not None:
        facts["prior"] = asdict(checkpoint.facts.prior)
    if checkpoint.facts.model is not None:
        facts["model"] = checkpoint.facts.model
    if checkpoint.facts.max_no_answer is not None:
        facts["no_answer"] = {"threshold": checkpoint.facts.max_no_answer}
        if checkpoint.facts.no_answer is not None:
            facts["no_answer"]["weights"] = asdict(checkpoint.facts.no_answer)
    if checkpoint.facts.most_docs:
        facts["most_docs"] = checkpoint.facts.most_docs
    (folder / FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def choose_device(device: str) -> str:
    """`auto` is the first GPU where there is one. Raises SettingInvalid for a device that is not here."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise SettingInvalid(setting="device", reason=f"{device!r} is none of auto, cpu, cuda, cuda:N.") from error
    if wanted.type not in ("cpu", "cuda"):
        raise SettingInvalid(setting="device", reason=f"{device!r} is none of auto, cpu, cuda, cuda:N.")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise SettingInvalid(
            setting="device", reason=f"{device!r} is not here; GPUs found: {torch.cuda.device_count()}."
        )
    return device


def choose_dtype(dtype: Dtype, device: str) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it, float32 elsewhere. With `int8` the rest is as `auto` has it.

    Raises SettingInvalid for int8 on a GPU.
    """
    if dtype == "int8":
        if device != "cpu":
            raise SettingInvalid(setting="dtype", reason="int8 is for the processor; a GPU takes bfloat16.")
        dtype = "auto"
    if dtype != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[dtype]
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return auto_type()


def locate(source: str | Path) -> Path:
    """The folder of a checkpoint that is named by its folder, its package or its hub id.

    Raises CheckpointInvalid.
    """
    name, folder = str(source), Path(source)
    if folder.is_file():
        raise CheckpointInvalid(checkpoint=name, reason="it is a file; name the folder that holds config.json.")
    if not folder.is_dir():
        packaged = checkpoint_folder(name)
        if packaged is not None:
            return packaged
        if name in DEFAULT_CHECKPOINTS:
            extra = name.removeprefix("openbook-")
            reason = f"Its package comes with: pip install 'openbook[{extra}]'"
            raise CheckpointInvalid("not_found", checkpoint=name, reason=reason)
    return find_folder(source)


def _read_config(folder: Path) -> RagConfig:
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointInvalid(checkpoint=str(folder), reason="it has no config.json.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"config.json is not JSON: {error}") from error
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind != "rag":
        raise CheckpointInvalid(
            checkpoint=str(folder), reason=f"config.json describes a model of type {kind!r}; a RAG folder says 'rag'."
        )
    missing = [part for part in ("question_encoder", "generator") if not isinstance(content.get(part), dict)]
    if missing:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"config.json does not describe its {missing[0]}.")
    try:
        return RagConfig.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"config.json: {first_line(error)}") from error


def read_generation(folder: Path, default: GenerationConfig) -> GenerationConfig:
    """What generation_config.json says; `default`, which transformers makes of config.json, where there is none."""
    if not (folder / GENERATION_FILE).is_file():
        return default
    try:
        return GenerationConfig.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"{GENERATION_FILE}: {first_line(error)}") from error


def read_facts(folder: Path) -> Facts:
    """What the folder's openbook.json says. Raises CheckpointInvalid for a file that is none."""
    path = folder / FACTS_FILE
    if not path.is_file():
        return Facts(name=folder.resolve().name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != 1:
            raise CheckpointInvalid(
                checkpoint=str(folder), reason=f"{FACTS_FILE} has format {content['format']!r}, this version reads 1."
            )
        kind, known = content.get("kind", "rag"), [*OWN_KINDS, *extensions(KINDS)]
        if kind not in known:
            raise ValueError(f"kind is one of {', '.join(known)}, and is {kind!r}")
        # a reader may leave all of it to the defaults
        content["reader"] = (content.get("reader") or {}) if kind == "reader" else None
        said = {name: value for name, value in content.items() if value is not None}
        return _FACTS.validate_json(json.dumps(said), strict=True)
    except ValidationError as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"{FACTS_FILE}: {first_defect(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"{FACTS_FILE}: {error!r}") from error


def read_tokenizer(folder: Path, name: str, config: Any = None, *, controls: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in folder `name`; without `controls`, no text has special tokens. Raises CheckpointInvalid."""
    path = folder / name
    if not path.is_dir():
        raise CheckpointInvalid("tokenizer", checkpoint=str(folder), folder=name, reason="it is not there")
    try:
        # the model's configuration tells the class of tokenizers saved before tokenizer_config.json said it
        tokenizer = AutoTokenizer.from_pretrained(path, config=config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raise anything, bare Exception included
        raise CheckpointInvalid("tokenizer", checkpoint=str(folder), folder=name, reason=first_line(error)) from error
    tokenizer.split_special_tokens = not controls
    return tokenizer


def fingerprint_of(folder: Path) -> str:
    """Twelve hex digits over everything that decides an answer: weights, configuration, tokenizers, base."""
    digest = hashlib.sha256()
    parts = (QUESTION_TOKENIZER, GENERATOR_TOKENIZER, QUESTION_ENCODER, GENERATOR, READER)
    files = [*folder.glob("*"), *(path for part in parts for path in (folder / part).rglob("*"))]
    for path in sorted(files):
        if path.is_file() and path.suffix in {".safetensors", ".bin", ".json", ".txt", ".model", ".jinja"}:
            digest.update(f"{path.relative_to(folder).as_posix()}\n{sha256_of(path)}\n".encode())
    return digest.hexdigest()[:12]
