"""What decides which bytes a build makes. A build that was stopped goes on only with the recipe that it began with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openbook.indexing.building.named_encoder import NamedEncoder
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import PassageSource

Recipe = dict[str, Any]


def recipe_of(
    source: PassageSource, encoder: PassageEncoder | NamedEncoder, batch_passages: int, index: Mapping[str, Any]
) -> Recipe:
    """The source with its size, the encoder with its precision, the size of a batch, and the index asked for.

    Neither the number of workers nor the engine is in it: they change no byte.
    """
    return {
        "source": source.name,
        "source bytes": source.total_bytes,
        "date": source.snapshot_date,
        "licence": source.licence,
        "encoder": encoder.name,
        "encoder fingerprint": encoder.fingerprint,
        "precision": encoder.precision,
        "batch": batch_passages,
        **{f"index {name}": value for name, value in index.items() if value is not None},
    }


def stamp_of(path: Path) -> str:
    """What changes when a file or the listing of a folder does: for a recipe, so that no two texts are mixed."""
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def differences(before: Recipe, now: Recipe) -> str:
    """What is not the same, for people: "encoder: a, now b; ..."; empty where nothing differs."""
    return "; ".join(
        f"{name}: {_said(before.get(name))}, now {_said(now.get(name))}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    )


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
