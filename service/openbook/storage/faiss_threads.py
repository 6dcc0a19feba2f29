"""How many threads a call of FAISS may take, and how large an array it may read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import faiss

# FAISS has one limit on the arrays that it reads for the whole process.
READING = threading.Lock()


@contextmanager
def threads(number: int) -> Iterator[None]:
    """So many threads for the calls of this thread, and then as before."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@contextmanager
def no_array_larger_than(n_bytes: int) -> Iterator[None]:
    """Refuse a damaged length instead of asking the system for as much memory, where this FAISS can."""
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        yield
        return
    with READING:
        before = faiss.get_deserialization_vector_byte_limit()
        faiss.set_deserialization_vector_byte_limit(n_bytes)
        try:
            yield
        finally:
            faiss.set_deserialization_vector_byte_limit(before)
