"""The encoder of vectors that are there already: it is named, and embeds nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """What is known of the encoder that made the vectors. An empty fingerprint is one that nobody knows."""

    name: str
    fingerprint: str
    dimension: int
    precision: str = "as given"
    device: str = "cpu"
