"""Memory for tiles that is used again: fresh pages from the system cost more than filling them.

A thread keeps the largest room that it has asked for under each name, a few megabytes.
"""

import threading

import torch
from torch import Tensor

_kept = threading.local()


def scratch(name: str, numbers: int) -> Tensor:
    """Room for so many float32 numbers, the same for the same name until a larger one is asked for.

    >>> scratch("example", 6).shape
    torch.Size([6])
    """
    room = vars(_kept).get(name)
    if room is None or room.numel() < numbers:
        with torch.inference_mode(False):  # what is made in it could not be written to outside
            room = torch.empty(numbers, dtype=torch.float32, device="cpu")
        setattr(_kept, name, room)
    return room[:numbers]
