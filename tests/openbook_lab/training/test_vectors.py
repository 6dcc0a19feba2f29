"""Vectors that are made once: the same again from the folder, others for other texts."""

from pathlib import Path

import numpy as np
import torch

from openbook.indexing.passage_encoder import PassageEncoder
from openbook_lab.training.vectors import KeptVectors

TEXTS = ["Lima is the capital of Peru.", "Quito is the capital of Ecuador."]


def test_vectors_are_the_encoders_own_and_are_read_again_from_the_folder(tmp_path: Path) -> None:
    made = KeptVectors(tmp_path).encode_texts(TEXTS)
    exact = PassageEncoder.load().encode_texts(TEXTS)
    assert np.abs(made - exact).max() < 0.02  # bfloat16
    (file,) = tmp_path.iterdir()
    np.save(file, made + 1)
    np.testing.assert_array_equal(KeptVectors(tmp_path).encode_texts(TEXTS), made + 1)


def test_other_texts_have_vectors_of_their_own(tmp_path: Path) -> None:
    kept = KeptVectors(tmp_path)
    lists = [["ab", "c"], ["a", "bc"], ["ab"], ["c", "ab"]]
    for texts in lists:
        kept.encode_texts(texts)
    assert len(list(tmp_path.iterdir())) == len(lists)


def test_slices_give_the_same_bytes_and_say_how_far_they_are(tmp_path: Path) -> None:
    texts = [f"{'Lima ' * (number % 7)}is number {number}." for number in range(20)]
    told: list[tuple[int, int | None, str]] = []
    for _ in range(2):
        kept = KeptVectors(tmp_path, progress=lambda *so_far: told.append(so_far), dtype=torch.float32)
        made = kept.encode_texts(texts, batch_size=2)
    assert told == [(0, 20, "vectors"), (16, 20, "vectors"), (20, 20, "vectors")]
    np.testing.assert_array_equal(made, PassageEncoder.load().encode_texts(texts, batch_size=2))
