"""Time and memory of inspection: capture of a model's attention, and maps of it at any length.

    python benchmarks/inspection.py [--quick] [--threads N] [--part capture maps]
                                    [--lengths 128 512 …] [--peers sdpa capture …]
                                    [--map-lengths 8192 32768 …] [--masks every causal]

capture: one forward pass of GPT-2's sizes (12 layers × 12 heads, width 768, random weights) by
plain sdpa, under capture, as a whole trace (capture, records, a check against the model's output),
eager with output_attentions, with BertViz's page of it, and by TransformerLens with its cache
(optional: pip install bertviz transformer-lens). In each round the peers run one after the other;
medians are printed. Memory is the peak over what was there before, each peer in a process of its
own. A peer stops at the length that would need more than --memory.

maps: one head of width 64, T random tokens, causal and not: the slowest tile of each pool size up
to 16, a grid (every pixel of 32×32 weights, maximum and mean, and the log-sum-exp), the store, the
100 strongest links, the table of what the head does; and the whole matrix for comparison.
"""

import argparse
import gc
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard.attention import make_call
from regard.attention.masks import Causal
from regard.inspection.atlas import Grid, head_of, preview, strongest, tile
from regard.inspection.capture.interface import watching
from regard.inspection.heads import Text, family
from regard.inspection.record import AttentionRecord
from regard.inspection.summary import measure
from regard.inspection.tracing import trace

HEADS, WIDTH, VOCABULARY = 12, 768, 1000
LAYERS = 12
Step = Callable[[], object]


def gpt2(attention: str, tokens: int):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=LAYERS,
        vocab_size=VOCABULARY,
        n_positions=tokens,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )
    config._attn_implementation = attention
    return GPT2LMHeadModel(config).eval(), torch.randint(3, VOCABULARY, (1, tokens))


def sdpa(tokens: int) -> Step:
    model, ids = gpt2("sdpa", tokens)
    return lambda: model(input_ids=ids)


def capture(tokens: int) -> Step:
    model, ids = gpt2("sdpa", tokens)

    def step():
        with watching(model) as watch:
            model(input_ids=ids)
        return watch.calls

    return step


def whole_trace(tokens: int) -> Step:
    model, ids = gpt2("sdpa", tokens)
    return lambda: trace(model, input_ids=ids)


def eager(tokens: int) -> Step:
    model, ids = gpt2("eager", tokens)
    return lambda: model(input_ids=ids, output_attentions=True).attentions


def bertviz(tokens: int) -> Step:
    from bertviz import head_view

    model, ids = gpt2("eager", tokens)
    names = [str(i) for i in ids[0].tolist()]

    def step():
        attentions = model(input_ids=ids, output_attentions=True).attentions
        page = head_view(attentions, names, html_action="return").data
        return f"page of {len(page.encode()) / 1e6:,.0f} MB"

    return step


def transformer_lens(tokens: int) -> Step:
    from tokenizers import Tokenizer, models
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import PreTrainedTokenizerFast

    model, ids = gpt2("eager", tokens)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b"))
    with tempfile.TemporaryDirectory() as folder:  # it wants a tokenizer that came of a folder
        special = {f"{name}_token": "a" for name in ("bos", "eos", "pad")}
        PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        bridge = TransformerBridge.boot_transformers("gpt2", hf_model=model, tokenizer=tokenizer)
    return lambda: bridge.run_with_cache(ids)


PEERS: dict[str, Callable[[int], Step]] = {
    "plain sdpa": sdpa,
    "with capture": capture,
    "whole trace": whole_trace,
    "eager, output_attentions": eager,
    "BertViz head_view": bertviz,
    "TransformerLens cache": transformer_lens,
}

MATRICES = {"eager, output_attentions": 5, "BertViz head_view": 60, "TransformerLens cache": 14}
"""About how many bytes a weight a peer needs at its peak."""


def one_step(peer: str, tokens: int) -> None:
    """In a process of its own: the peak of one step over what was there before (Linux)."""
    with torch.no_grad():
        PEERS[peer](16)()
        step = PEERS[peer](tokens)
        gc.collect()
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        step()
    print((status("VmHWM") - before) / 1e6)


def status(name: str) -> int:
    """A size in bytes from what the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def memory(peer: str, tokens: int, threads: int) -> str:
    command = [sys.executable, __file__, "--one", peer, str(tokens), "--threads", str(threads)]
    command += ["--layers", str(LAYERS)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return "failed"
    return f"{float(done.stdout.splitlines()[-1]):,.0f} MB"


def available(wanted: list[str]) -> list[str]:
    found = []
    for peer in PEERS:
        if wanted and not any(one.lower() in peer.lower() for one in wanted):
            continue
        try:
            PEERS[peer](16)
        except ImportError as error:
            print(f"{peer}: skipped, not installed ({error.name})")
            continue
        found.append(peer)
    return found


def captures(
    lengths: list[int], wanted: list[str], rounds: int, limit: float, threads: int
) -> None:
    print(f"\nCapture: {LAYERS} layers, batch 1, float32, median of {rounds} rounds after one more")
    peers = available(wanted)
    for tokens in lengths:
        weights = LAYERS * HEADS * tokens**2
        fits = [p for p in peers if MATRICES.get(p, 0) * weights < limit * 1e9]
        fits = [p for p in fits if p != "BertViz head_view" or tokens <= 512]
        steps = {peer: PEERS[peer](tokens) for peer in fits}
        times: dict[str, list[float]] = {peer: [] for peer in fits}
        notes: dict[str, str] = {}
        with torch.no_grad():
            for round_ in range(rounds + 1):
                for peer, step in steps.items():
                    start = time.perf_counter()
                    result = step()
                    seconds = time.perf_counter() - start
                    notes[peer] = result if isinstance(result, str) else ""
                    del result
                    if round_:
                        times[peer].append(seconds)
        del steps
        gc.collect()
        base = times.get("plain sdpa", times[fits[0]])
        print(f"T = {tokens:,}")
        for peer in peers:
            if peer not in fits:
                print(f"  {peer:26} left out: it would need too much memory or time")
                continue
            ratio = statistics.median(a / b for a, b in zip(times[peer], base, strict=True))
            print(
                f"  {peer:26} {statistics.median(times[peer]):8.3f} s  {ratio:6.2f} × sdpa  "
                f"{memory(peer, tokens, threads):>10}  {notes[peer]}"
            )


def timed(step: Step, rounds: int) -> tuple[float, object]:
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        result = step()
        best = min(best, time.perf_counter() - start)
    return best, result


def maps(lengths: list[int], masks: list[str], rounds: int) -> None:
    print(f"\nMaps: one head, d = 64, float32 from 16 bit, best of {rounds} (grid: of 2)")
    for tokens in lengths:
        for mask, name in ((None, "every key"), (Causal(), "causal")):
            if not any(name.startswith(one) for one in masks):
                continue
            one_map(tokens, mask, name, rounds)


def one_map(tokens: int, mask, name: str, rounds: int) -> None:
    torch.manual_seed(0)
    q, k = (torch.randn(1, 1, tokens, 64).bfloat16() for _ in "qk")
    record = AttentionRecord(name="head", layer=0, call=make_call(q, k, k, mask=mask))
    head = head_of(record, 0)
    print(f"T = {tokens:,}, {name}")
    largest = min(512, tokens // 256)
    seconds, seen = timed(lambda: preview(head_of(record, 0), largest, 0, 0), rounds)
    print(f"  first look, pool {largest}: {seconds * 1e3:.0f} ms ({seen.note})")
    seconds, grid = timed(lambda: Grid.build(head_of(record, 0)), 2)
    print(
        f"  grid {seconds:.2f} s ({seconds / tokens**2 * 1e9:.2f} ns a weight), "
        f"{grid.nbytes / 1e6:.1f} MB; q, k and log-sum-exp in 16 and 32 bit "
        f"{(q.nbytes + k.nbytes + 4 * tokens) / 1e6:.1f} MB; "
        f"the matrix would be {4 * tokens**2 / 1e6:,.0f} MB"
    )
    Grid.build(head)
    parts = []
    for s in (1, 2, 4, 8, 16):
        if 256 * s > tokens:
            break
        last = tokens // (256 * s) - 1
        slowest = max(
            timed(lambda s=s, at=at, stat=stat: tile(head, s, *at, stat), rounds)[0]
            for at in ((last, 0), (last, last))
            for stat in ("max", "mean")
        )
        parts.append(f"s={s} {slowest * 1e3:.1f}")
    print(f"  slowest tile, ms: {', '.join(parts)}")
    seconds, _ = timed(lambda: strongest(head, 100, exclude_diagonal=True, grid=grid), rounds)
    streamed, _ = timed(lambda: strongest(head, 100, exclude_diagonal=True), 1)
    print(f"  100 strongest: {seconds:.2f} s with the grid, {streamed:.2f} s without")
    if tokens <= 32768:
        ids = torch.randint(tokens // 4, (tokens,))
        text = Text(ids, ids, torch.zeros(tokens, dtype=torch.bool))
        measures = [family.create(one) for one in family.names()]
        seconds, _ = timed(lambda: measure(head, text, measures), 1)
        print(f"  what the head does, {len(measures)} measures: {seconds:.2f} s")
    if tokens <= 8192:
        allowed = None if mask is None else torch.ones(tokens, tokens, dtype=torch.bool).tril()

        def whole():
            scores = q[0, 0].float() @ k[0, 0].float().T / 8
            return (
                scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
            ).softmax(1)

        print(f"  the whole matrix: {timed(whole, rounds)[0]:.2f} s")


def main() -> None:
    global LAYERS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look at every part, below a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--part", nargs="+", default=["capture", "maps"])
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=[128, 512, 1024, 2048, 4096, 8192]
    )
    parser.add_argument("--peers", nargs="+", default=[], help="parts of their names; else all")
    parser.add_argument("--masks", nargs="+", default=["every", "causal"])
    parser.add_argument("--map-lengths", nargs="+", type=int, default=[8192, 32768, 131072])
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=float, default=12, help="GB that a peer may need")
    parser.add_argument("--one", nargs=2, metavar=("PEER", "T"), help=argparse.SUPPRESS)
    settings = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    torch.set_num_threads(settings.threads)
    LAYERS = 2 if settings.quick else settings.layers
    if settings.one:
        one_step(settings.one[0], int(settings.one[1]))
        return
    if settings.quick:
        settings.lengths, settings.map_lengths, settings.rounds = [128], [2048], 2
    print(
        f"{platform.processor() or platform.machine()}, {settings.threads} thread(s), "
        f"torch {torch.__version__}"
    )
    if "capture" in settings.part:
        captures(
            settings.lengths, settings.peers, settings.rounds, settings.memory, settings.threads
        )
    if "maps" in settings.part:
        maps(settings.map_lengths, settings.masks, settings.rounds)


if __name__ == "__main__":
    main()
