"""The encoder without padding, against transformers' own forward of each family."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    CamembertConfig,
    CamembertModel,
    MPNetConfig,
    MPNetModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from openbook.errors import SettingInvalid
from openbook.rag import packed_encoder
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.open_generator import open_generator
from openbook.rag.packed_encoder import PackedEncoder, can_pack
from openbook.rag.pointer import Pointer
from openbook.rag.reader_wording import Window
from openbook.rag.span_networks import PackedReader, TransformersReader
from tests.fixtures.checkpoints import SHAPE, diversify
from tests.fixtures.readers import FAMILIES, PACKED, POSITIONS

LENGTHS = (7, POSITIONS, 3, 60, 7, 130, 1, 129)


def some_rows(vocabulary: int = 90) -> list[list[int]]:
    dice = torch.Generator().manual_seed(1)
    return [torch.randint(5, vocabulary, (length,), generator=dice).tolist() for length in LENGTHS]


def alone(model: Any, row: list[int], kinds: list[int] | None = None) -> Tensor:
    """What transformers makes of one row: (L, d)."""
    ids = torch.tensor([row])
    more = {} if kinds is None else {"token_type_ids": torch.tensor([kinds])}
    with torch.no_grad():
        states: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).last_hidden_state[0]
    return states


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest of the relative errors of the rows."""
    both = zip(found, wanted, strict=True)
    return max(float((one.double() - other.double()).norm() / other.double().norm()) for one, other in both)


@pytest.fixture(scope="module", params=PACKED)
def reader(request: pytest.FixtureRequest, tiny_readers: dict[str, Path]) -> Any:
    return AutoModelForQuestionAnswering.from_pretrained(tiny_readers[request.param]).eval()


def relatives() -> list[Callable[[], Any]]:
    size = {**SHAPE, "vocab_size": 90, "max_position_embeddings": POSITIONS + 2, "pad_token_id": 1}
    return [
        lambda: XLMRobertaModel(XLMRobertaConfig(**size)),
        lambda: CamembertModel(CamembertConfig(**size)),
        lambda: MPNetModel(MPNetConfig(**{**size, "hidden_act": "relu"})),
    ]


def test_each_family_has_transformers_states(reader: Any) -> None:
    rows = some_rows()
    for row, states in zip(rows, PackedEncoder(reader)(rows), strict=True):
        assert torch.allclose(states, alone(reader.base_model, row), atol=1e-4)


@pytest.mark.parametrize("number", range(3))
def test_relatives_and_other_activations_have_them_too(number: int) -> None:
    model = relatives()[number]().eval()
    diversify(model, seed=number)
    rows = some_rows()
    for row, states in zip(rows, PackedEncoder(model)(rows), strict=True):
        assert torch.allclose(states, alone(model, row), atol=1e-4)


def test_kinds_of_tokens_count(tiny_readers: dict[str, Path]) -> None:
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_readers["bert"]).eval()
    rows = some_rows()
    kinds = [[0] * (len(row) // 2) + [1] * (len(row) - len(row) // 2) for row in rows]
    for row, of_row, states in zip(rows, kinds, PackedEncoder(model)(rows, kinds), strict=True):
        assert torch.allclose(states, alone(model.base_model, row, of_row), atol=1e-4)


@pytest.mark.parametrize("most", [1, 100, 400])
def test_a_row_does_not_depend_on_its_batch_its_order_or_the_passes(
    reader: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, encoder = some_rows(), PackedEncoder(reader)
    together = encoder(rows)
    monkeypatch.setattr(packed_encoder, "MAX_TOKENS", most)
    monkeypatch.setattr(packed_encoder, "MAX_SCORES", most)
    for states, other in zip(together, encoder(rows[::-1])[::-1], strict=True):
        assert torch.allclose(states, other, atol=1e-5)
    for row, states in zip(rows, together, strict=True):
        assert torch.allclose(states, encoder([row])[0], atol=1e-5)


def test_lower_precisions_are_as_near_as_their_digits(reader: Any) -> None:
    rows = some_rows()
    wanted = PackedEncoder(reader)(rows)
    rounded = PackedEncoder(reader, int8=True)
    assert {states.dtype for states in rounded(rows)} == {torch.float32}
    assert error(rounded(rows), wanted) < 0.1
    both = PackedEncoder(reader, int8=True, dtype=torch.bfloat16)(rows)
    assert {states.dtype for states in both} == {torch.bfloat16}
    assert error(both, wanted) < 0.1
    halved = type(reader)(reader.config).eval().bfloat16()
    halved.load_state_dict(reader.state_dict())
    assert error(PackedEncoder(halved)(rows), wanted) < 0.05
    exact = type(reader)(reader.config).eval().double()
    exact.load_state_dict(reader.state_dict())
    assert error(PackedEncoder(exact)(rows), [alone(exact.base_model, row) for row in rows]) < 1e-9


def test_weights_are_given_away(tiny_readers: dict[str, Path]) -> None:
    rows = some_rows()
    for more in ({}, {"int8": True, "dtype": torch.bfloat16}):
        model: Any = AutoModelForQuestionAnswering.from_pretrained(tiny_readers["mpnet"]).eval()
        kept = PackedEncoder(model, **more)(rows)
        assert error(PackedEncoder(model, keep=False, **more)(rows), kept) == 0
        left = [name for name, one in model.named_parameters() if ".layer." in name and one.numel() and one.ndim > 1]
        assert left == []
        assert (model.get_input_embeddings().weight.numel() == 0) is ("dtype" in more)


@pytest.mark.parametrize("family", FAMILIES)
def test_three_families_of_readers_are_packed(family: str, tiny_pointers: dict[str, Path]) -> None:
    checkpoint = load_checkpoint(tiny_pointers[family])
    generator = open_generator(checkpoint)
    assert isinstance(generator, Pointer)
    packed = family in PACKED
    assert can_pack(checkpoint.generator) is packed
    assert type(generator.network) is (PackedReader if packed else TransformersReader)
    if not packed:
        with pytest.raises(SettingInvalid, match="int8 is for readers that are BERT, RoBERTa or MPNet"):
            open_generator(load_checkpoint(tiny_pointers[family], dtype="int8"))


@pytest.mark.parametrize("family", PACKED)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.1), ("int8", 0.25)])
def test_windows_have_the_starts_and_ends_of_transformers(
    family: str, dtype: Any, tolerance: float, tiny_pointers: dict[str, Path]
) -> None:
    whole = load_checkpoint(tiny_pointers[family])
    expected = TransformersReader("mine", whole.generator, whole.generator_tokenizer)
    lower = open_generator(load_checkpoint(tiny_pointers[family], dtype=dtype))
    assert isinstance(lower, Pointer)
    windows = [
        Window(tuple(row), tuple([0] * 2 + [1] * (len(row) - 2))[: len(row)], 0, 0, len(row)) for row in some_rows()
    ]
    for one, other in zip(lower.network(windows), expected(windows), strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < tolerance
