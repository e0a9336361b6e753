"""Watching any torch module: what its attention layers did while it ran.

>>> import torch
>>> module = torch.nn.MultiheadAttention(6, 2, batch_first=True).eval()
>>> x = torch.randn(1, 3, 6)
>>> with watch(module) as watched:
...     _ = module(x, x, x)
>>> watched.trace().weights(0, 1).shape
torch.Size([3, 3])
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from regard.attention import Call
from regard.attention.functional import taps
from regard.errors import OptionError
from regard.inspection.capture import own, torch_multihead
from regard.inspection.capture._captured import Captured
from regard.inspection.capture.assemble import records
from regard.inspection.capture.hugging_face import choose
from regard.inspection.record import AttentionRecord
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace
from regard.inspection.verify import require_faithful


@dataclass
class Watched:
    """The attention calls of a module, in the order in which they ran."""

    calls: list[Captured | own.Seen] = field(default_factory=list)

    def records(self, item: int | None = None) -> list[AttentionRecord]:
        """One record a call, for one text of the batch."""
        found = []
        for layer, call in enumerate(self.calls):
            if isinstance(call, Captured):
                at = choose(item, call.q.shape[0])
                found.append(replace(records([call], at)[0], layer=layer))
            else:
                found.append(call.record(layer, choose(item, call.call.sizes[0])))
        require_faithful(found)
        return found

    def trace(
        self,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        item: int | None = None,
    ) -> Trace:
        """A trace of all calls, which must be of one size; tokens are numbers unless given."""
        made = self.records(item)
        if not made:
            raise OptionError(
                "no attention ran under watch: regard sees its own layers, attend, and "
                "torch.nn.MultiheadAttention; for Hugging Face models there is regard.trace"
            )
        sizes = {(record.q_tokens, record.k_tokens) for record in made}
        if len(sizes) > 1:
            told = ", ".join(f"{q} × {k}" for q, k in sorted(sizes))
            raise OptionError(f"the calls are of several sizes ({told}); take records() instead")
        ((queries, keys),) = sizes
        rows = _named(tokens, queries)
        same = key_tokens is None and queries == keys
        return Trace(made, rows, key_tokens=None if same else _named(key_tokens, keys))


def _named(names: Sequence[str] | None, size: int) -> list[Token]:
    if names is None:
        names = [str(i) for i in range(size)]
    if len(names) != size:
        raise OptionError(f"there are {len(names)} token names for {size} tokens")
    return [Token(name) for name in names]


@contextmanager
def watch(module: nn.Module) -> Iterator[Watched]:
    """Keep what the attention in `module` does until the context ends.

    Seen are `regard.MultiHeadAttention`, `regard.attend` called within `module`'s forward, and
    `torch.nn.MultiheadAttention`. Outputs are the module's own; PyTorch's encoder layers leave
    their fused path when somebody looks on, as they do in training.
    """
    watched = Watched()
    thread = threading.get_ident()
    running = 0

    def begin(*_: Any) -> None:
        nonlocal running
        running += 1

    def end(*_: Any) -> None:
        nonlocal running
        running -= 1

    def called(_: nn.Module, args: Any, call: Call) -> None:
        if running and threading.get_ident() == thread:
            watched.calls.append(own.Seen(name=f"{type(module).__name__}: attend", call=call))

    def mixed(_: nn.Module, args: Any, output: Tensor) -> None:
        if running and threading.get_ident() == thread:
            last = watched.calls[-1]
            assert isinstance(last, own.Seen)
            last.mixed = output.detach()

    with ExitStack() as stack:
        for hook in (
            module.register_forward_pre_hook(begin),
            module.register_forward_hook(end, always_call=True),
            taps.call.register_forward_hook(called),
            taps.mixed.register_forward_hook(mixed),
            *own.hooks(module, watched.calls.append),
            *torch_multihead.hooks(module, watched.calls.append),
        ):
            stack.callback(hook.remove)
        yield watched
