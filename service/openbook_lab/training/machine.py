"""The machine of a stage: device, precision, and several processes that exchange one message a step."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from openbook.rag.checkpoint import choose_device, choose_dtype
from openbook_lab.training.recipe import Dtype

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """Device and precision of a stage, and this process's place among those that train one model together.

    Each process trains on its own part of every step. Wherever other work shares a core, several processes of one
    thread are faster than one process of several threads: threads wait for each other at every operation, processes
    once a step.
    """

    device: torch.device = CPU
    dtype: torch.dtype = torch.bfloat16
    rank: int = 0
    count: int = 1

    @classmethod
    def of(cls, device: str, dtype: Dtype, *, rank: int = 0, count: int = 1) -> "Machine":
        """The machine with this device and precision; of several GPUs, each process takes its own.

        Raises SettingInvalid for a device that is not here.
        """
        chosen = choose_device(device)
        if chosen == "cuda" and count > 1:
            chosen = f"cuda:{rank % torch.cuda.device_count()}"
        return cls(torch.device(chosen), choose_dtype(dtype, chosen), rank, count)

    def average(self, tensor: Tensor) -> None:
        """Replace `tensor`, in place, by its mean over the processes."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
            tensor.div_(self.count)

    def first_says(self, number: int) -> int:
        """The first process's number, broadcast to all."""
        if self.count == 1:
            return number
        message = torch.tensor([number], device=self.device)
        torch.distributed.broadcast(message, 0)
        return int(message)


ALONE = Machine()


def meet(folder: str, rank: int, count: int) -> None:
    """Join the other processes that meet in this folder, on one thread; returns once all are there."""
    torch.set_num_threads(1)
    # NCCL needs a GPU for each process; gloo connects processors, and processes that share one GPU
    enough = torch.cuda.device_count() >= count
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if enough else "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count
    )


@contextmanager
def gathered(other: Callable[[int, str], None], count: int) -> Iterator[None]:
    """Start `count - 1` processes that call `other(rank, folder)` beside this one, which is the first.

    `other` must be picklable: a function of a module, or a `partial` of one.
    """
    if count == 1:
        yield
        return
    spawn = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        others = [spawn.Process(target=other, args=(rank, folder), daemon=True) for rank in range(1, count)]
        for process in others:
            process.start()
        try:
            meet(folder, 0, count)
            yield
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            torch.set_num_threads(threads)
            for process in others:
                process.join(timeout=60)
