"""DPR's files of vectors are read, and whatever else a pickle can be is not."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openbook.errors import SourceInvalid
from openbook.plugins.ready.restricted_pickle import read_vectors

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)


def read(folder: Path, content: bytes) -> tuple[list[str], np.ndarray]:
    path = folder / "wikipedia_passages_0"
    path.write_bytes(content)
    return read_vectors(path)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_ids_and_vectors_come_as_they_were_written(tmp_path: Path, protocol: int, kind: type[np.floating[Any]]) -> None:
    pairs = [("wiki:1", VECTORS[0].astype(kind)), ("2", VECTORS[1].astype(kind)), (3, VECTORS[2].astype(kind))]
    ids, vectors = read(tmp_path, pickle.dumps(pairs, protocol))
    assert ids == ["1", "2", "3"]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


class Calls:
    """Pickled, a call of anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def test_no_code_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for hostile in (
        Calls(os.system, f"touch {trace}"),
        Calls(eval, f"open({str(trace)!r}, 'w')"),
        Calls(open, str(trace), "w"),
        Calls(getattr, "os", "system"),
        Calls(__import__, "antigravity"),
        Calls(np.load, str(trace), None, True),
    ):
        for content in (hostile, [("1", hostile)], [("1", VECTORS[0]), hostile]):
            with pytest.raises(SourceInvalid, match="which no file of vectors needs"):
                read(tmp_path, pickle.dumps(content))
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        b"cos\nsystem\n(S'true'\ntR.",
        # names that lead on from one that is allowed
        b"\x80\x04\x8c\x16numpy.core.multiarray\x8c\x1a_reconstruct.__globals__\x93.",
        b"\x80\x04\x8c\x05numpy\x8c\x0fdtype.__class__\x93.",
        # an object from outside, and a registered extension
        b"\x80\x04\x8c\x01x\x51.",
        b"\x80\x04\x82\x01.",
        # an array that is called rather than rebuilt
        b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93K\x05\x85R.",
        pickle.dumps({"1": VECTORS[0]}),
        pickle.dumps([]),
        pickle.dumps([("1", [1.0, 2.0])]),
        pickle.dumps([("1", VECTORS)]),
        pickle.dumps([("1", VECTORS[0]), ("2", VECTORS[1][:3])]),
        pickle.dumps([("1", VECTORS[0].astype(np.int32))]),
        pickle.dumps([("1", VECTORS[0].astype(">f4"))]),
        pickle.dumps([("1", np.array([{}, "a"], dtype=object))]),
        pickle.dumps([("1", np.zeros(2, dtype=[("a", "f4")]))]),
        pickle.dumps([(b"1", VECTORS[0])]),
        pickle.dumps([("1", VECTORS[0], 3)]),
        pickle.dumps([("1", VECTORS[0])])[:-20],
    ],
)
def test_whatever_else_a_pickle_holds_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SourceInvalid, match="wikipedia_passages_0"):
        read(tmp_path, content)


def test_a_state_that_lies_about_its_length_is_refused(tmp_path: Path) -> None:
    content = pickle.dumps([("1", VECTORS[0])], protocol=4)
    # the shape (4,), before the dtype: a small integer in a tuple of one
    assert content.count(b"K\x04\x85") == 1
    with pytest.raises(SourceInvalid, match="another length than its shape"):
        read(tmp_path, content.replace(b"K\x04\x85", b"K\x09\x85"))
