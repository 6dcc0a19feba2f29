"""LoRA (Hu et al. 2021) on a causal generator: what training adds to a model whose own weights it leaves alone.

The package peft puts two small matrices beside every linear layer. `openbook.rag.adapter` reads what is written here.
"""

import copy
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SettingInvalid
from openbook.rag.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PREFIX, read_adapter

# What is added counts alpha / rank times: twice, whatever the rank.
ALPHA_OF_RANK = 2


def add_lora(generator: PreTrainedModel, rank: int | None, adapter: Path | None = None) -> None:
    """Put LoRA beside every linear layer but the one that gives logits, in place: it changes nothing yet.

    With an `adapter` its matrices are taken. Raises SettingInvalid for another rank than the adapter's, and without
    the package peft.
    """
    if importlib.util.find_spec("peft") is None:
        raise SettingInvalid(setting="--generator-lora", reason="it needs peft: pip install 'openbook-lab[lora]'")

    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict

    config, tensors = read_adapter(adapter) if adapter is not None else ({}, {})
    if rank is not None and config.get("r", rank) != rank:
        raise SettingInvalid(
            setting="--generator-lora", reason=f"the base has an adapter of rank {config['r']}: go on with that"
        )
    known = {name: config[name] for name in ("r", "lora_alpha", "target_modules") if name in config}
    fresh: dict[str, Any] = {"r": rank, "lora_alpha": ALPHA_OF_RANK * (rank or 0), "target_modules": "all-linear"}
    lora = LoraConfig(task_type="CAUSAL_LM", fan_in_fan_out=_is_transposed(generator), **(fresh | known))
    inject_adapter_in_model(lora, generator)
    if tensors:
        set_peft_model_state_dict(generator, {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()})


def lora_parameters(generator: PreTrainedModel) -> list[torch.nn.Parameter]:
    """All that `add_lora` has added; empty for a model without."""
    return [parameter for _, parameter in _named(generator)]


def lora_state(generator: PreTrainedModel) -> dict[str, Tensor]:
    """The matrices by their names in the model."""
    return {name: parameter.detach() for name, parameter in _named(generator)}


def merged(generator: PreTrainedModel) -> PreTrainedModel:
    """A copy whose linear layers hold the sum: a model like any other."""
    whole = copy.deepcopy(generator)
    layers = [name for name, module in whole.named_modules() if hasattr(module, "lora_A")]
    for name in layers:
        parent, _, last = name.rpartition(".")
        layer: Any = whole.get_submodule(name)
        layer.merge()
        setattr(whole.get_submodule(parent), last, layer.base_layer)
    return whole


def save_lora(generator: PreTrainedModel, folder: Path) -> None:
    """Write the matrices in peft's format, in float16."""
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    # peft keeps the configuration of each adapter of a model by its name
    config = generator.peft_config["default"].to_dict() | {"inference_mode": True}
    plain = {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(plain, indent=2, default=str) + "\n", encoding="utf-8")
    tensors = {
        f"{PREFIX}{name}": tensor.detach().to("cpu", torch.float16).contiguous()
        for name, tensor in get_peft_model_state_dict(generator).items()
    }
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    (folder / ADAPTER_WEIGHTS).chmod(0o644)


def _named(generator: PreTrainedModel) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return ((name, parameter) for name, parameter in generator.named_parameters() if ".lora_" in name)


def _is_transposed(generator: PreTrainedModel) -> bool:
    """GPT-2's layers hold their weights the other way round."""
    return any(type(module).__name__ == "Conv1D" for module in generator.modules())
