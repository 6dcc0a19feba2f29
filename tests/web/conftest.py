"""The service of tests/api, and a real Chromium to look at it with."""

from tests.api.conftest import app, client, engine, settings, slow_search

__all__ = ["app", "client", "engine", "settings", "slow_search"]
