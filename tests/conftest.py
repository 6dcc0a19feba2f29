"""What every test shares: real tiny checkpoints and indexes (tests/fixtures), and a locked front door."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports transformers: the suite never asks a hub for a file.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# No limit of time for an example: a busy machine takes longer than hypothesis' 200 ms.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = [
    "tests.fixtures.checkpoints",
    "tests.fixtures.clock",
    "tests.fixtures.command_line",
    "tests.fixtures.indexes",
    # needs the one before
    "tests.fixtures.databases",
    "tests.fixtures.evaluation",
    "tests.fixtures.stepping",
    "tests.fixtures.stores",
    "tests.fixtures.summary",
    "tests.fixtures.causal",
    "tests.fixtures.readers",
    "tests.fixtures.language_servers",
]

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches beyond this machine fails, whatever library it went through."""
    connect = socket.socket.connect

    def connect_to_loopback(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOOPBACK:
            pytest.fail(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_to_loopback)


@pytest.fixture(scope="session", autouse=True)
def one_thread_a_computation() -> Iterator[None]:
    """Tiny models are slowed by many threads, and a machine with few cores most of all."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
