"""Time and memory of attention: additive scores, learned relative biases, the multi-head layer.

    python benchmarks/attention.py [--quick] [--threads 1 2] [--lengths 256 512 …]
                                   [--group additive relative layer] [--results FILE]
                                   [--figure FILE]

A step is forward and backward, with gradients of inputs and parameters; 4 heads of width 64, batch
1, float32. The peers of a group run in turn, round after round, and the median of the rounds is
printed, so that what else the machine does meets all of them alike. Memory is the peak of one step
over what was there before it, each peer in a process of its own. A peer stops where a step needs
more than --memory or --patience. With --results, what is measured joins what FILE holds already, so
that a long run may come in pieces; ``--group`` without a name measures nothing and shows the file.
PyKeOps is compared if installed (pip install pykeops; it compiles
with the machine's C++ compiler).
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numba
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.attention import attend, masks, scores
from regard.attention.bias import RelativeBias

HEADS, WIDTH = 4, 64
LENGTHS = [256, 512, 1024, 2048, 4096, 8192]
Step = Callable[[], object]


def inputs(tokens: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, tokens, WIDTH, requires_grad=True) for _ in range(3))
    return q, k, v, torch.randn(1, HEADS, tokens, WIDTH)


def sdpa(tokens: int) -> Step:
    q, k, v, upstream = inputs(tokens)
    return lambda: F.scaled_dot_product_attention(q, k, v).backward(upstream)


def additive_score() -> torch.nn.Module:
    return scores.create("additive", heads=HEADS, head_width=WIDTH)


def additive_naive(tokens: int) -> Step:
    q, k, v, upstream = inputs(tokens)
    score = additive_score()

    def step():
        a, b = score.project(q, k)
        tanh = torch.tanh(a[:, :, :, None] + b[:, :, None])  # (1, H, T, T, d)
        (torch.einsum("bhijd,hd->bhij", tanh, score.weight).softmax(-1) @ v).backward(upstream)

    return step


def additive_keops(tokens: int) -> Step:
    import pykeops
    from pykeops.torch import LazyTensor

    pykeops.set_verbose(False)
    q, k, v, upstream = inputs(tokens)
    score = additive_score()

    def step():
        a, b = score.project(q, k)
        rows = LazyTensor(a[:, :, :, None].contiguous())
        columns = LazyTensor(b[:, :, None].contiguous())
        weight = LazyTensor(score.weight[None, :, None, None].contiguous())
        values = LazyTensor(v[:, :, None].contiguous())
        # It has no tanh; tanh(x) = 1 − 2 / (1 + exp(2x)).
        tanh = 1 - 2 / (1 + (2 * (rows + columns)).exp())
        logits = (weight * tanh).sum(-1)
        logits.sumsoftmaxweight(values, dim=3).backward(upstream)

    return step


def additive_regard(tokens: int) -> Step:
    q, k, v, upstream = inputs(tokens)
    score = additive_score()
    return lambda: attend(q, k, v, score=score).backward(upstream)


def table_for(tokens: int) -> Tensor:
    return torch.randn(HEADS, 2 * tokens - 1, requires_grad=True)


def relative_sdpa(tokens: int) -> Step:
    q, k, v, upstream = inputs(tokens)
    table = table_for(tokens)
    places = torch.arange(tokens)
    columns = places - places[:, None] + tokens - 1

    def step():
        F.scaled_dot_product_attention(q, k, v, attn_mask=table[:, columns]).backward(upstream)

    return step


def relative_regard(tokens: int) -> Step:
    q, k, v, upstream = inputs(tokens)
    table = table_for(tokens)
    return lambda: attend(q, k, v, bias=RelativeBias(table, 1 - tokens)).backward(upstream)


def layer_inputs(tokens: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    shape = 1, tokens, HEADS * WIDTH
    return torch.randn(shape, requires_grad=True), torch.randn(shape)


def layer_torch(tokens: int) -> Step:
    x, upstream = layer_inputs(tokens)
    layer = torch.nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens)
    options = {"attn_mask": mask, "is_causal": True, "need_weights": False}
    return lambda: layer(x, x, x, **options)[0].backward(upstream)


def layer_x_transformers(tokens: int) -> Step:
    from x_transformers.x_transformers import Attention

    x, upstream = layer_inputs(tokens)
    layer = Attention(HEADS * WIDTH, heads=HEADS, dim_head=WIDTH, causal=True, flash=True)
    return lambda: layer(x).backward(upstream)


def layer_regard(tokens: int) -> Step:
    x, upstream = layer_inputs(tokens)
    layer = regard.MultiHeadAttention(HEADS * WIDTH, HEADS)
    causal = masks.Causal()
    return lambda: layer(x, mask=causal).backward(upstream)


OURS = "regard"
GROUPS: dict[str, dict[str, Callable[[int], Step]]] = {
    "additive": {
        "naive PyTorch": additive_naive,
        "KeOps": additive_keops,
        OURS: additive_regard,
        "SDPA, dot product": sdpa,
    },
    "relative": {
        "SDPA, T×T bias": relative_sdpa,
        OURS: relative_regard,
        "SDPA, no bias": sdpa,
    },
    "layer": {
        "torch.nn.MultiheadAttention": layer_torch,
        "x-transformers": layer_x_transformers,
        OURS: layer_regard,
    },
}
TITLES = {
    "additive": "additive attention",
    "relative": "dot product with a learned bias over offsets",
    "layer": "causal multi-head layer, width 256",
}
PACKAGES = {"KeOps": "pykeops", "x-transformers": "x_transformers"}


def installed(peer: str) -> bool:
    if peer not in PACKAGES:
        return True
    try:
        __import__(PACKAGES[peer])
    except ImportError:
        return False
    return True


def limit_memory(gigabytes: float) -> None:
    """Beyond this much of its own, an allocation fails instead of filling the machine."""
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def attempt(step: Step) -> float | None:
    """Seconds of one step, or None if memory ran out."""
    start = time.perf_counter()
    try:
        step()
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error):
            raise
        return None
    return time.perf_counter() - start


def measure_times(
    group: str, lengths: list[int], rounds: int, patience: float
) -> dict[str, dict[int, float]]:
    """Median seconds by peer and length; a peer that stopped has no entry from there on."""
    alive = {peer: make for peer, make in GROUPS[group].items() if installed(peer)}
    found: dict[str, dict[int, float]] = {peer: {} for peer in alive}
    for tokens in lengths:
        steps = {}
        for peer, make in list(alive.items()):
            step = make(tokens)
            if attempt(step) is None:  # compiles and warms up, too
                print(f"  {peer} stops before T={tokens}: out of memory", flush=True)
                del alive[peer]
            else:
                steps[peer] = step
        seconds: dict[str, list[float]] = {peer: [] for peer in steps}
        for _ in range(rounds):
            for peer, step in steps.items():
                taken = attempt(step)
                if taken is not None and not (seconds[peer] and taken > patience):
                    seconds[peer].append(taken)
        for peer, taken in seconds.items():
            found[peer][tokens] = statistics.median(taken)
            if found[peer][tokens] * 4 > patience:
                print(f"  {peer} stops after T={tokens}: out of patience", flush=True)
                alive.pop(peer, None)
    return found


def kilobytes(kind: str) -> int:
    return int(Path("/proc/self/status").read_text().split(kind + ":")[1].split()[0])


def measure_memory_here(group: str, peer: str, lengths: list[int]) -> None:
    """Print length and megabytes a line; for a process that does nothing else."""
    make = GROUPS[group][peer]
    make(64)()
    for tokens in lengths:
        step = make(tokens)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = kilobytes("VmRSS")
        if attempt(step) is None:
            return
        print(tokens, (kilobytes("VmHWM") - before) / 1024, flush=True)


def measure_memory(
    group: str, times: dict[str, dict[int, float]], memory: float
) -> dict[str, dict[int, float]]:
    """Megabytes by peer and length, each peer in a process of its own."""
    found: dict[str, dict[int, float]] = {}
    if sys.platform != "linux":
        print("  memory: measured on Linux only")
        return found
    for peer in times:
        lengths = [str(tokens) for tokens in times[peer]]
        if not lengths:
            continue
        command = [sys.executable, __file__, "--memory", str(memory), "--measure", group, peer]
        done = subprocess.run(
            [*command, "--lengths", *lengths], capture_output=True, text=True, check=True
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        found[peer] = {int(n): float(mb) for n, mb in (pair for pair in lines if len(pair) == 2)}
    return found


@dataclass
class Results:
    """Seconds by group, threads, peer and length; megabytes by group, peer and length."""

    times: dict[str, dict[int, dict[str, dict[int, float]]]] = field(default_factory=dict)
    memory: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)

    def add(self, group: str, threads: int, times: dict, memory: dict) -> None:
        """Newer numbers take the place of older ones."""
        for peer, own in times.items():
            self.times.setdefault(group, {}).setdefault(threads, {}).setdefault(peer, {}).update(
                own
            )
        for peer, own in memory.items():
            self.memory.setdefault(group, {}).setdefault(peer, {}).update(own)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"times": self.times, "memory": self.memory}, indent=1))

    @classmethod
    def load(cls, path: Path) -> "Results":
        def with_numbers(tree: object) -> dict:
            if not isinstance(tree, dict):
                return tree  # a measurement
            return {int(k) if k.isdigit() else k: with_numbers(v) for k, v in tree.items()}

        return cls(**with_numbers(json.loads(path.read_text())))


def print_table(
    group: str,
    times: dict[str, dict[int, float]],
    memory: dict[str, dict[int, float]],
) -> None:
    lengths = sorted({n for own in times.values() for n in own})
    wide = max(len(peer) for peer in times) + 2

    def line(name: str, values: list[str]) -> None:
        print(f"  {name:{wide}}" + "".join(f"{value:>10}" for value in values))

    line("ms a step", [f"T={tokens}" for tokens in lengths])
    for peer, own in times.items():
        line(peer, [f"{own[n] * 1e3:.1f}" if n in own else "–" for n in lengths])
    line(f"time over {OURS}'s", [""] * len(lengths))
    for peer, own in times.items():
        if peer != OURS:
            ours = times[OURS]
            both = [n in own and n in ours for n in lengths]
            ratios = [own[n] / ours[n] if ok else 0 for n, ok in zip(lengths, both, strict=True)]
            line(peer, [f"{r:.2f}" if r else "–" for r in ratios])
    if memory:
        line("peak MB over inputs", [""] * len(lengths))
        for peer, own in memory.items():
            line(peer, [f"{own[n]:.0f}" if n in own else "–" for n in lengths])
    print(flush=True)


def draw(path: Path, found: Results) -> None:
    """One column a group: time by each number of threads, and memory, against tokens."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    threads = sorted({count for by_count in found.times.values() for count in by_count})
    figure, axes = pyplot.subplots(
        len(threads) + 1,
        len(found.times),
        figsize=(4.2 * len(found.times), 2.9 * (len(threads) + 1)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for column, (group, by_count) in enumerate(found.times.items()):
        colors = {peer: f"C{i}" for i, peer in enumerate(GROUPS[group])}
        rows = [
            (f"ms a step, {count} thread{'s' * (count > 1)}", 1e3, by_count.get(count, {}))
            for count in threads
        ]
        rows.append(("peak MB over inputs", 1, found.memory.get(group, {})))
        for axis, (what, scale, measured) in zip(axes[:, column], rows, strict=True):
            for peer, own in measured.items():
                lengths = sorted(own)
                axis.plot(
                    lengths,
                    [own[n] * scale for n in lengths],
                    marker="o",
                    markersize=4,
                    linewidth=2.5 if peer == OURS else 1.2,
                    color=colors[peer],
                    label=peer,
                )
            axis.set(xscale="log", yscale="log", ylabel=what)
            axis.set_xticks(LENGTHS, [str(n) for n in LENGTHS], minor=False)
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        axes[0][column].set_title(TITLES[group], fontsize=10)
        axes[0][column].legend(fontsize=8)
        axes[-1][column].set_xlabel("tokens")
    figure.suptitle(f"forward and backward, {HEADS} heads of width {WIDTH}, float32")
    figure.savefig(path, dpi=90)
    print(f"figure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short lengths, few rounds, 1 thread")
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--threads", type=int, nargs="+")
    parser.add_argument("--group", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--memory", type=float, default=8, help="gigabytes that a peer may use")
    parser.add_argument("--patience", type=float, default=30, help="seconds that a step may take")
    parser.add_argument("--results", type=Path, help="join these results, and keep them, as JSON")
    parser.add_argument("--figure", type=Path, help="draw all results here")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if sys.platform == "linux":
        limit_memory(arguments.memory)
    lengths = arguments.lengths or ([64, 256] if arguments.quick else LENGTHS)
    if arguments.measure:
        torch.set_num_threads(1)
        measure_memory_here(*arguments.measure, lengths)
        return
    threads = arguments.threads or ([1] if arguments.quick else [1, 2])
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    print(
        f"regard {regard.__version__}, torch {torch.__version__}, numba {numba.__version__}, "
        f"{platform.machine()}; {HEADS} heads of width {WIDTH}, batch 1, float32; "
        f"medians of {rounds} interleaved rounds"
    )
    for peer, package in PACKAGES.items():
        if not installed(peer):
            print(f"{peer} is not installed and is left out (pip install {package})")
    found = Results()
    if arguments.results and arguments.results.exists():
        found = Results.load(arguments.results)
    for count in threads:
        torch.set_num_threads(count)
        for group in arguments.group:
            times = measure_times(group, lengths, rounds, arguments.patience)
            known = found.memory.get(group, {})
            missing = {
                peer: {n: taken for n, taken in own.items() if n not in known.get(peer, {})}
                for peer, own in times.items()
            }
            found.add(group, count, times, measure_memory(group, missing, arguments.memory))
            if arguments.results:
                found.save(arguments.results)
    for group, by_count in found.times.items():
        for count, times in sorted(by_count.items()):
            print(f"{TITLES[group]}, {count} thread{'s' * (count > 1)}")
            print_table(group, times, found.memory.get(group, {}))
    if arguments.figure:
        draw(arguments.figure, found)


if __name__ == "__main__":
    main()
