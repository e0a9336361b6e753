"""The processes of a run started by torchrun, over torch.distributed with gloo.

torchrun --nproc-per-node 2 -m regard vectors train FILE -o OUT
"""

import os

import numpy as np
import torch
import torch.distributed as dist

from regard.errors import OptionError

_ROWS = 1 << 16


def started_by_torchrun() -> bool:
    """Whether this process is one of several that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


class TorchPeers:
    """This process's `rank` among `size`, and what they do together; use as a context."""

    def __init__(self) -> None:
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            raise OptionError(
                "no peers: RANK and WORLD_SIZE are not set; start the processes with "
                "torchrun --nproc-per-node N -m regard …"
            )
        self._mine = not dist.is_initialized()
        if self._mine:
            dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def __enter__(self) -> "TorchPeers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._mine:
            dist.destroy_process_group()

    def average(self, table: np.ndarray) -> None:
        """Replace `table` (rows, width), float32, by its mean over all processes."""
        for first in range(0, len(table), _ROWS):
            rows = torch.from_numpy(table[first : first + _ROWS])
            dist.all_reduce(rows)
            rows /= self.size

    def total(self, numbers: np.ndarray) -> np.ndarray:
        """The sum of `numbers` (float64) over all processes."""
        summed = torch.from_numpy(numbers.astype(np.float64))
        dist.all_reduce(summed)
        return summed.numpy()
