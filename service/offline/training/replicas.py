"""Several processes that run one stage together: torch.distributed, one message between them a step."""

import tempfile
from collections.abc import Callable
from typing import Any

import torch

from service.offline.training.loop import Replicas
from service.offline.training.stage import Machine
from service.rag.checkpoint import choose_device, choose_dtype

Work = Callable[..., None]


def machine_of(device: str, dtype: Any, replicas: Replicas) -> Machine:
    """The device and the precision that were asked for; with several GPUs, one for each process.

    Raises SettingInvalid for a device that is not here.
    """
    chosen = choose_device(device)
    if chosen == "cuda" and replicas.count > 1:
        chosen = f"cuda:{replicas.rank % torch.cuda.device_count()}"
    return Machine(torch.device(chosen), choose_dtype(dtype, chosen), replicas)


def run_together(work: Work, arguments: tuple[Any, ...], count: int, **for_the_first: Any) -> None:
    """Call `work(*arguments, Replicas(rank, count))` in `count` processes, this one among them as the first.

    `for_the_first` are named arguments that only it is given. `work` is a function of a module, and each of the
    processes runs it on one thread; one alone runs it on all.
    """
    if count == 1:
        work(*arguments, Replicas(), **for_the_first)
        return
    spawn = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        others = [
            spawn.Process(target=_other, args=(work, arguments, rank, count, meeting), daemon=True)
            for rank in range(1, count)
        ]
        for process in others:
            process.start()
        try:
            _meet(meeting, 0, count)
            work(*arguments, Replicas(0, count), **for_the_first)
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            torch.set_num_threads(threads)
            for process in others:
                process.join(timeout=60)


def _other(work: Work, arguments: tuple[Any, ...], rank: int, count: int, meeting: str) -> None:
    _meet(meeting, rank, count)
    work(*arguments, Replicas(rank, count))
    torch.distributed.destroy_process_group()


def _meet(meeting: str, rank: int, count: int) -> None:
    torch.set_num_threads(1)
    # NCCL wants a GPU for each process; gloo carries messages between processors, and between processes on one GPU
    backend = "nccl" if torch.cuda.device_count() >= count else "gloo"
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo", init_method=meeting, rank=rank, world_size=count
    )
