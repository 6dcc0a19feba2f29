"""A process that flips bytes of an index file and searches what is not refused, each time in a child of its own.

`python -m tests.soak.damaging TYPE STRIDE FOLDER` flips every STRIDE-th byte, and more of the file's head where lengths
stand, and writes one JSON object: how many bytes it flipped, how many files were refused, which ended the process.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from openbook.errors import IndexCorrupt
from openbook.storage.index_store import IndexStore
from tests.fixtures.killing import in_child
from tests.soak.books import DIMENSION, publish_book

N_PASSAGES = 300
HEAD_BYTES = 144
# At most: a length has eight bytes.
HEAD_STRIDE = 3
REFUSED = 3


def sweep(index_type: Any, stride: int, folder: Path) -> dict[str, Any]:
    in_child(lambda: publish_book(IndexStore(folder), "book", n_passages=N_PASSAGES, index_type=index_type))
    path = folder / "book" / "index.faiss"
    sound = path.read_bytes()
    head = range(0, min(HEAD_BYTES, len(sound)), min(HEAD_STRIDE, stride))
    places = sorted({*head, *range(0, len(sound), stride)})
    refused = 0
    ended_by = {}
    for place in places:
        damaged = folder / "damaged"
        damaged.write_bytes(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])
        damaged.replace(path)
        ended, _ = in_child(lambda: search(folder))
        refused += ended == REFUSED
        if ended not in (0, REFUSED):
            ended_by[place] = ended
    return {"flipped": len(places), "refused": refused, "ended_by": ended_by}


def search(folder: Path) -> None:
    """As a service does after a swap with verify=manifest. What it finds may be wrong; that it goes on may not."""
    try:
        snapshot = IndexStore(folder).open("book")
        snapshot.warm()
    except IndexCorrupt:
        os._exit(REFUSED)
    for query in np.random.default_rng(1).standard_normal((20, 1, DIMENSION)).astype(np.float32):
        rows = snapshot.search(query, 20)[0].tolist()
        snapshot.vectors(rows)
        snapshot.passages(rows)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(sweep(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
