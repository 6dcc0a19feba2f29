"""What a checkpoint is, read from its small files; weights are compared with their digest, never loaded."""

from pathlib import Path

from openbook.rag.checkpoint import GENERATOR, QUESTION_ENCODER, READER, fingerprint_of, locate, read_facts
from openbook.rag.encoder_head import read_json


def describe(source: str | Path) -> dict[str, str]:
    """By name, what `openbook checkpoint show` says of a checkpoint.

    Raises CheckpointInvalid.
    """
    folder = locate(source)
    facts = read_facts(folder)
    said = {"checkpoint": f"{facts.name}@{fingerprint_of(folder)}", "folder": str(folder)}
    if facts.kind == "rag":
        config = read_json(folder, "config.json")
        said["generator"] = str(config.get("generator", {}).get("model_type"))
        said["question encoder"] = str(config.get("question_encoder", {}).get("model_type"))
    else:
        of_reader = facts.reader is not None
        model = read_json(folder / (READER if of_reader else GENERATOR), "config.json").get("model_type")
        said["generator"] = f"{model}, {'a span reader' if of_reader else facts.kind}"
        said["question encoder"] = str(read_json(folder / QUESTION_ENCODER, "config.json").get("model_type"))
    if facts.reader is not None:
        said["normalisation"] = facts.reader.normalisation
    if facts.prompt is not None:
        form = "a chat" if facts.prompt.get("chat") else "a text"
        said["prompt"] = f"{len(facts.prompt.get('shots', ()))} examples, {form}"
    said["passage encoder"] = f"{facts.encoder_name or 'not said'} {facts.encoder_fingerprint or ''}".strip()
    said["prior scale"] = f"{facts.prior_scale:g}"
    return said
