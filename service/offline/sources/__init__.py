"""Where passages come from: the demo's encyclopedia, JSON lines, DPR's table."""

from service.offline.sources.opening import open_source
from service.offline.sources.source import Batch, PassageSource

__all__ = ["Batch", "PassageSource", "open_source"]
