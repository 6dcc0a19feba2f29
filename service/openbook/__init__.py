"""Openbook: a question-answering service that marginalises over the passages it reads (Lewis et al. 2020)."""

__version__ = "0.2.0"
