"""regard's own format: one safetensors file, whose JSON header says what the tensors are.

Source: the safetensors layout: 8 bytes with the length of a JSON header, the header, the tensors'
bytes. The tensors are ``vectors`` (V, D); ``tokens``, the words' UTF-8 bytes in a row, with
``token_offsets`` (V + 1,); ``counts`` (V,), ``buckets`` (fastText's n-gram rows) and ``extra.…``
if there are any. What is no tensor stands as JSON in the header's metadata under ``regard``.
Opening reads the header only; the tensors are memory-mapped.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from regard.errors import DataError
from regard.vectors.formats._files import Source, head, writing
from regard.vectors.formats._format import Format, Reading, Table, check_numbers, utf8
from regard.vectors.subwords import Subwords

_DTYPES = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4",
    "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_LONGEST_HEADER = 100 << 20
_BLOCK = 1 << 24
_VERSION = 1


class Safetensors(Format):
    """regard's own format.

    >>> Safetensors().recognizes(struct.pack("<Q", 2) + b"{}")
    True
    """

    suffixes = (".safetensors",)
    compressible = False

    def recognizes(self, head: bytes) -> bool:
        """The length of a header, and then JSON."""
        if len(head) < 10 or head[8:9] != b"{":
            return False
        return struct.unpack("<Q", head[:8])[0] <= _LONGEST_HEADER

    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`, memory-mapped."""
        tensors, metadata = _open(path)
        about = json.loads(metadata.get("regard", "null"))
        if about is None or "vectors" not in tensors or "token_offsets" not in tensors:
            raise DataError(
                f"{path} holds tensors ({', '.join(sorted(tensors)) or 'none'}) but no words; "
                "regard opens the .safetensors files that it saved as word vectors"
            )
        if about["version"] > _VERSION:
            raise DataError(
                f"{path} was saved by a newer regard (format {about['version']}, this one knows "
                f"up to {_VERSION}); upgrade regard"
            )
        offsets, text, matrix = tensors["token_offsets"], tensors["tokens"], tensors["vectors"]
        tokens = pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text)
        )
        try:
            tokens.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(f"{path}: its words are damaged: {error}") from None
        if len(tokens) != len(matrix):
            raise DataError(f"{path}: {len(tokens)} words but {len(matrix)} vectors")
        counts = tensors.get("counts")
        if reading.limit is not None:
            tokens, matrix = tokens.slice(0, reading.limit), matrix[: reading.limit]
            counts = None if counts is None else counts[: reading.limit]
        if reading.dtype is not None and matrix.dtype != reading.dtype:
            matrix = matrix.astype(reading.dtype)
        extra = about["extra"] | {
            name.removeprefix("extra."): tensor
            for name, tensor in tensors.items()
            if name.startswith("extra.")
        }
        subwords = None
        if about["subwords"]:
            subwords = Subwords(tensors["buckets"], **about["subwords"])
        return Table(tokens, matrix, counts, extra or None, subwords)

    def write(self, table: Table, path: Path) -> None:
        """Write `table` block by block, without a second copy of its numbers."""
        words = [utf8(token, path) for token in table.tokens]
        offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
        tensors = {
            "vectors": table.matrix,
            "token_offsets": offsets,
            "tokens": np.frombuffer(b"".join(words), np.uint8),
        }
        about: dict[str, Any] = {"version": _VERSION, "extra": {}, "subwords": None}
        if table.counts is not None:
            tensors["counts"] = np.asarray(table.counts, np.int64)
        if table.subwords is not None:
            tensors["buckets"] = table.subwords.buckets
            about["subwords"] = {
                "shortest": table.subwords.shortest,
                "longest": table.subwords.longest,
            }
        for name, value in (table.extra or {}).items():
            if isinstance(value, np.ndarray):
                tensors[f"extra.{name}"] = value
                if value.dtype.newbyteorder("<") not in _NAMES:
                    raise DataError(f"{path}: extra[{name!r}] cannot be saved: {value.dtype}")
                continue
            try:
                json.dumps(value)
            except TypeError as error:
                raise DataError(f"{path}: extra[{name!r}] cannot be saved: {error}") from None
            about["extra"][name] = value
        _save(tensors, {"regard": json.dumps(about, ensure_ascii=False)}, table, path)


def _open(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a safetensors file, memory-mapped, and its metadata."""
    with Source(path) as source:
        if source.compressed:
            raise DataError(f"{path} is compressed; unpack it first, since its numbers are mapped")
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    if not Safetensors().recognizes(head(path)):
        raise DataError(f"{path} is no safetensors file")
    start = 8 + struct.unpack("<Q", data[:8].tobytes())[0]
    try:
        header = json.loads(data[8:start].tobytes())
        metadata = header.pop("__metadata__", {})
        tensors: dict[str, np.ndarray] = {}
        for name, entry in header.items():
            if entry["dtype"] not in _DTYPES:
                continue
            begin, end = (start + offset for offset in entry["data_offsets"])
            if end > len(data):
                raise DataError(
                    f"{path} is cut: its tensor {name!r} ends at byte {end} of {len(data)}"
                )
            tensors[name] = (
                np.asarray(data[begin:end]).view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
            )
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: its header is damaged or cut ({error})") from None
    return tensors, metadata


def _save(
    tensors: dict[str, np.ndarray], metadata: dict[str, str], table: Table, path: Path
) -> None:
    header: dict[str, Any] = {"__metadata__": metadata}
    position = 0
    # The widest numbers first, so that each tensor begins where its numbers may be mapped.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    for name, tensor in ordered:
        header[name] = {
            "dtype": _NAMES[tensor.dtype.newbyteorder("<")],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        position += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with writing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in ordered:
            step = max(1, _BLOCK // max(tensor[:1].nbytes, 1)) if tensor.ndim else 1
            tensor = np.atleast_1d(tensor)
            for first in range(0, len(tensor), step):
                block = np.ascontiguousarray(tensor[first : first + step])
                if name == "vectors":
                    check_numbers(block, first, table, path)
                file.write(block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes())
