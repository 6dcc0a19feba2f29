"""Vectors of versions in a Milvus database; passages, BM25 and filters stay files."""
