"""A trace in one safetensors file: tensors as they are, rules and tokens as JSON in its header.

The file appears whole or not at all. Tensors that layers share are written once.
"""

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regard.attention import DenseBias, RelativeBias, make_call
from regard.attention import normalizers as normalizer_family
from regard.attention import scores as score_family
from regard.attention.bias import Bias
from regard.attention.masks import Arbitrary, Causal, Mask, Padding, Window
from regard.attention.masks._mask import _Both
from regard.errors import DataError, OptionError, StorageError
from regard.inspection.record import AttentionRecord, ScaledBy
from regard.inspection.tokens import Token
from regard.inspection.tracing import Trace
from regard.models.storage import write_tensors

FORMAT = 1
LARGEST_MATRIX = 2**26
"""How many numbers of a bias or mask that follows no rule are written out at most."""


class Tensors:
    """The tensors of a file by name; one that comes again keeps its name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}
        self._kept: list[Tensor] = []

    def add(self, name: str, tensor: Tensor | None) -> str | None:
        """The name under which a tensor is written."""
        if tensor is None:
            return None
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype))
        if place not in self._names:
            whole = tensor.detach().cpu().contiguous()
            alone = whole.untyped_storage().nbytes() == whole.numel() * whole.element_size()
            self.by_name[name] = whole if alone else whole.clone()
            self._names[place] = name
            self._kept.append(tensor)
        return self._names[place]


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace with all its parts; `OptionError` for a rule that no file can hold."""
    path = Path(path)
    tensors = Tensors()
    parts = {name: _part(one, name, tensors) for name, one in sorted(trace.parts.items())}
    header = {"format": FORMAT, "part": trace.part, "order": list(trace.parts), "parts": parts}
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {path}: {path.parent} is not a folder")
    metadata = {"regard.trace": json.dumps(header, ensure_ascii=False)}
    write_tensors(path, tensors.by_name, metadata)
    for one in trace.parts.values():
        one.path = path


def load(path: str | Path) -> Trace:
    """Read what `save` wrote; `DataError` if the file is something else or damaged."""
    path = Path(path)
    if not path.is_file():
        raise StorageError(f"there is no file {path}")
    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            if "regard.trace" not in metadata:
                raise DataError(f"{path} holds no trace; it is another safetensors file")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise DataError(f"{path} is cut short or damaged ({error})") from None
    header = json.loads(metadata["regard.trace"])
    if header["format"] != FORMAT:
        raise DataError(
            f"{path} has format {header['format']}, this version of regard reads {FORMAT}"
        )
    parts = {name: _read_part(header["parts"][name], tensors) for name in header["order"]}
    for one in parts.values():
        one.parts, one.path = parts, path
    return parts[header["part"]]


def _part(trace: Trace, name: str, tensors: Tensors) -> dict[str, Any]:
    same = trace.key_tokens is trace.tokens
    return {
        "model": trace.model,
        "notes": list(trace.notes),
        "texts": list(trace.texts),
        "tokens": [asdict(token) for token in trace.tokens],
        "key_texts": None if same else list(trace.key_texts),
        "key_tokens": None if same else [asdict(token) for token in trace.key_tokens],
        "part": trace.part,
        "layers": [_record(one, f"{name}.{one.layer}", tensors) for one in trace.records],
    }


def _read_part(found: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    keys = found["key_tokens"]
    return Trace(
        [_read_record(one, tensors) for one in found["layers"]],
        [Token(**token) for token in found["tokens"]],
        key_tokens=None if keys is None else [Token(**token) for token in keys],
        texts=found["texts"],
        key_texts=found["key_texts"],
        model=found["model"],
        notes=found["notes"],
        part=found["part"],
    )


def _record(record: AttentionRecord, name: str, tensors: Tensors) -> dict[str, Any]:
    call = record.call
    lse = record.known_log_sum_exp
    known = torch.stack([lse[head] for head in sorted(lse)]) if lse else None
    kept = {
        "q": record.q,
        "k": record.k,
        "v": record.v,
        "mixed": record.mixed,
        "residual": record.residual,
        "q_unrotated": record.q_unrotated,
        "k_unrotated": record.k_unrotated,
        "log_sum_exp": known,
        "query_positions": call.query_positions,
        "key_positions": call.key_positions,
    }
    return {
        "name": record.name,
        "layer": record.layer,
        "tensors": {part: tensors.add(f"{name}.{part}", x) for part, x in kept.items()},
        "heads_known": sorted(lse),
        "score": _module(call.score, f"{name}.score", tensors, score_family.names()),
        "normalizer": _module(
            call.normalizer, f"{name}.normalizer", tensors, normalizer_family.names()
        ),
        "mask": _mask(record, call.mask, f"{name}.mask", tensors),
        "biases": _biases(record, f"{name}.bias", tensors),
    }


def _read_record(found: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionRecord:
    kept: dict[str, Any] = {
        part: None if at is None else tensors[at] for part, at in found["tensors"].items()
    }
    lse = kept["log_sum_exp"]
    heads = {"heads": kept["q"].shape[0], "head_width": kept["q"].shape[2]}
    score = found["score"]
    call = make_call(
        kept["q"][None],
        kept["k"][None],
        kept["v"][None],
        score=ScaledBy(score["settings"]["scale"])
        if score["name"] == "scaled_by"
        else _read_module(score, score_family, tensors, heads),
        normalizer=_read_module(found["normalizer"], normalizer_family, tensors, heads),
        mask=_read_mask(found["mask"], tensors),
        bias=[_read_bias(one, tensors) for one in found["biases"]] or None,
        query_positions=kept["query_positions"],
        key_positions=kept["key_positions"],
        training=False,
    )
    return AttentionRecord(
        name=found["name"],
        layer=found["layer"],
        call=call,
        mixed=kept["mixed"],
        residual=kept["residual"],
        q_unrotated=kept["q_unrotated"],
        k_unrotated=kept["k_unrotated"],
        known_log_sum_exp={} if lse is None else dict(zip(found["heads_known"], lse, strict=True)),
    )


def _module(module: nn.Module, name: str, tensors: Tensors, known: list[str]) -> dict[str, Any]:
    """A score or normalizer: its name in its family, its settings and its learned tensors."""
    family = type(module).__module__.rpartition(".")[2]
    if isinstance(module, ScaledBy):
        return {"name": "scaled_by", "settings": {"scale": module.scale}, "tensors": {}}
    if family not in known:
        raise OptionError(
            f"{type(module).__name__} is none of regard's own ({', '.join(known)}), so a trace "
            "with it cannot be saved"
        )
    settings = {}
    for setting in inspect.signature(type(module)).parameters:
        value = getattr(module, setting, None)
        if isinstance(value, Tensor):
            value = True
        if isinstance(value, bool | int | float | str):
            settings[setting] = value
    state = {part: tensors.add(f"{name}.{part}", x) for part, x in module.state_dict().items()}
    return {"name": family, "settings": settings, "tensors": state}


def _read_module(
    found: dict[str, Any], family: Any, tensors: dict[str, Tensor], sizes: dict[str, int]
) -> Any:
    takes = inspect.signature(family.family.get(found["name"])).parameters
    settings = {name: size for name, size in sizes.items() if name in takes} | found["settings"]
    module = family.create(found["name"], **settings)
    state = {part: tensors[at] for part, at in found["tensors"].items()}
    for part, value in state.items():
        module.get_parameter(part).data = value.clone()
    return module.requires_grad_(False)


def _mask(
    record: AttentionRecord, mask: Mask | None, name: str, tensors: Tensors
) -> dict[str, Any] | None:
    if mask is None:
        return None
    if isinstance(mask, _Both):
        first = _mask(record, mask.first, f"{name}.first", tensors)
        second = _mask(record, mask.second, f"{name}.second", tensors)
        return {"kind": "both", "first": first, "second": second}
    if isinstance(mask, Causal):
        return {"kind": "causal"}
    if isinstance(mask, Window):
        return {"kind": "window", "width": mask.width, "after": mask.after}
    if isinstance(mask, Padding):
        return {"kind": "padding", "real": tensors.add(name, mask.real)}
    if isinstance(mask, Arbitrary):
        return {"kind": "arbitrary", "allowed": tensors.add(name, mask.allowed)}
    _require_small(record, "mask", 1)
    allowed = mask.allows(record.call.rectangle())
    return {"kind": "arbitrary", "allowed": tensors.add(name, allowed)}


def _read_mask(found: dict[str, Any] | None, tensors: dict[str, Tensor]) -> Mask | None:
    if found is None:
        return None
    match found["kind"]:
        case "both":
            first, second = (_read_mask(found[part], tensors) for part in ("first", "second"))
            assert first is not None
            assert second is not None
            return first & second
        case "causal":
            return Causal()
        case "window":
            return Window(found["width"], after=found["after"])
        case "padding":
            return Padding(tensors[found["real"]])
        case _:
            return Arbitrary(tensors[found["allowed"]])


def _biases(record: AttentionRecord, name: str, tensors: Tensors) -> list[dict[str, Any]]:
    """Tables and tensors as they are; a rule is written out as what it adds to this text."""
    if all(isinstance(bias, RelativeBias | DenseBias) for bias in record.biases):
        return [_bias(bias, f"{name}.{i}", tensors) for i, bias in enumerate(record.biases)]
    _require_small(record, "bias", record.heads)
    whole = [record.bias(head) for head in range(record.heads)]
    added = torch.stack([x for x in whole if x is not None])[None]
    return [{"kind": "dense", "tensor": tensors.add(f"{name}.0", added)}]


def _bias(bias: Bias, name: str, tensors: Tensors) -> dict[str, Any]:
    if isinstance(bias, RelativeBias):
        table = tensors.add(name, bias.table)
        return {"kind": "relative", "table": table, "lowest": bias.lowest}
    assert isinstance(bias, DenseBias)
    return {"kind": "dense", "tensor": tensors.add(name, bias.tensor)}


def _read_bias(found: dict[str, Any], tensors: dict[str, Tensor]) -> Bias:
    if found["kind"] == "relative":
        return RelativeBias(tensors[found["table"]], found["lowest"])
    return DenseBias(tensors[found["tensor"]])


def _require_small(record: AttentionRecord, what: str, heads: int) -> None:
    size = heads * record.q_tokens * record.k_tokens
    if size > LARGEST_MATRIX:
        raise OptionError(
            f"the {what} of {record.name} follows a rule that a file cannot hold, and written out "
            f"it has {size:,} numbers, above {LARGEST_MATRIX:,}; save a trace of a shorter text"
        )
