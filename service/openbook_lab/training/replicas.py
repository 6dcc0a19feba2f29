"""Several processes that run one stage together: torch.distributed, one message between them a step."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from openbook.rag.checkpoint import choose_device, choose_dtype
from openbook_lab.training.loop import Replicas
from openbook_lab.training.stage import Machine

Dtype = Literal["auto", "float32", "bfloat16"]


def machine_of(device: str, dtype: Dtype, replicas: Replicas) -> Machine:
    """The device and the precision that were asked for; with several GPUs, one for each process.

    Raises SettingInvalid for a device that is not here.
    """
    chosen = choose_device(device)
    if chosen == "cuda" and replicas.count > 1:
        chosen = f"cuda:{replicas.rank % torch.cuda.device_count()}"
    return Machine(torch.device(chosen), choose_dtype(dtype, chosen), replicas)


def meet(folder: str, rank: int, count: int) -> Replicas:
    """Join the other processes that meet in this folder, on one thread; returns once all are there."""
    torch.set_num_threads(1)
    # NCCL wants a GPU for each process; gloo carries messages between processors, and between processes on one GPU
    enough = torch.cuda.device_count() >= count
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if enough else "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count
    )
    return Replicas(rank, count)


@contextmanager
def gathered(other: Callable[[int, str], None], count: int) -> Iterator[Replicas]:
    """`count` processes at work together, this one the first of them; the rest call `other(rank, folder)`.

    `other` is what a fresh process can be told of: a function of a module, or a `partial` of one.
    """
    if count == 1:
        yield Replicas()
        return
    spawn = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        others = [spawn.Process(target=other, args=(rank, folder), daemon=True) for rank in range(1, count)]
        for process in others:
            process.start()
        try:
            yield meet(folder, 0, count)
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            torch.set_num_threads(threads)
            for process in others:
                process.join(timeout=60)
