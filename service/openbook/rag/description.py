"""What a checkpoint is, read from its small files; weights are compared with their digest, never loaded."""

from pathlib import Path

from openbook.rag.adapter import read_adapter
from openbook.rag.checkpoint import (
    ADAPTER,
    GENERATOR,
    QUESTION_ENCODER,
    READER,
    fingerprint_of,
    locate,
    question_encoder_of,
    read_facts,
)
from openbook.rag.encoder_head import read_json


def describe(source: str | Path) -> dict[str, str]:
    """By name, what `openbook checkpoint show` says of a checkpoint.

    Raises CheckpointNotFound, CheckpointInvalid, and CheckpointInvalid for an adapter whose base is not there.
    """
    folder = locate(source)
    facts = read_facts(folder)
    said = {"checkpoint": f"{facts.name}@{fingerprint_of(folder)}", "folder": str(folder)}
    if facts.reader is not None:
        said["generator"] = f"{read_json(folder / READER, 'config.json').get('model_type')}, a span reader"
        said["question encoder"] = str(read_json(folder / QUESTION_ENCODER, "config.json").get("model_type"))
        said["normalisation"] = facts.reader.normalisation
    elif facts.prompt is None:
        config = read_json(folder, "config.json")
        said["generator"] = str(config.get("generator", {}).get("model_type"))
        said["question encoder"] = str(config.get("question_encoder", {}).get("model_type"))
    else:
        base = folder if facts.adapts is None else facts.adapts.find(folder)
        if facts.adapts is not None:
            said["adapter of"] = f"{base.resolve()}, whose weights are those that it was trained on"
        said["generator"] = f"{read_json(base / GENERATOR, 'config.json').get('model_type')}, a causal language model"
        if (folder / ADAPTER).is_dir():
            adapter, matrices = read_adapter(folder / ADAPTER)
            millions = sum(one.numel() for one in matrices.values()) / 1e6
            said["adapter"] = f"LoRA of rank {adapter['r']}, {millions:.1f} million numbers"
        own = question_encoder_of(folder, base)
        model = read_json(own, "config.json").get("model_type")
        said["question encoder"] = f"{model}{'' if own.parent == folder else ', of the base'}"
        said["prompt"] = f"{len(facts.prompt.shots)} examples, {'a chat' if facts.prompt.chat else 'a text'}"
    said["passage encoder"] = f"{facts.encoder_name or 'not said'} {facts.encoder_fingerprint or ''}".strip()
    said["prior scale"] = f"{facts.prior_scale:g}"
    return said
