"""LoRA (Hu et al. 2021) on a causal generator: what training adds to a model whose own weights it leaves alone.

The package peft puts two small matrices beside every linear layer; the checkpoint that is written has their product in
its weights.
"""

import copy
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SettingInvalid

# What is added counts alpha / rank times: twice, whatever the rank.
ALPHA_OF_RANK = 2


def add_lora(generator: PreTrainedModel, rank: int) -> None:
    """Put LoRA beside every linear layer but the one that gives logits, in place: it changes nothing yet.

    Raises SettingInvalid without the package peft.
    """
    if importlib.util.find_spec("peft") is None:
        raise SettingInvalid(setting="--generator-lora", reason="it needs peft: pip install 'openbook-lab[lora]'")

    from peft import LoraConfig, inject_adapter_in_model

    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=rank,
        lora_alpha=ALPHA_OF_RANK * rank,
        target_modules="all-linear",
        fan_in_fan_out=_is_transposed(generator),
    )
    inject_adapter_in_model(lora, generator)


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


def _named(generator: PreTrainedModel) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return ((name, parameter) for name, parameter in generator.named_parameters() if ".lora_" in name)


def _is_transposed(generator: PreTrainedModel) -> bool:
    """GPT-2's layers hold their weights the other way round."""
    return any(type(module).__name__ == "Conv1D" for module in generator.modules())
