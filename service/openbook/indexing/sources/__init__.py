"""Where passages come from: files, folders, dumps, and what other packages bring."""

from openbook.indexing.sources.opening import named_sources, open_source
from openbook.indexing.sources.source import PassageBatch, PassageSource

__all__ = ["PassageBatch", "PassageSource", "named_sources", "open_source"]
