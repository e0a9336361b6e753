"""fastText's own model file, ``.bin``: its words, their vectors and the n-grams of unknown ones.

Source: the file layout of fastText 0.9 (Dictionary::save, DenseMatrix::save), format versions 11
and 12; Bojanowski et al. (2017). A word's vector is the mean of its own row and those of its
n-grams; ``</s>``, the end of a line, has no n-grams. Files of before version 11, from before 2017,
begin with their settings, without a mark or a version; they and quantized ones (``.ftz``) are
refused.
"""

import struct
from pathlib import Path
from typing import no_type_check

import numpy as np
from numba import njit

from regard.errors import DataError
from regard.vectors.formats._files import Source
from regard.vectors.formats._format import Faults, Format, Reading, Table, without_repeats
from regard.vectors.subwords import Subwords

_MAGIC = struct.pack("<i", 793712314)
_SETTINGS = (
    "dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model", "bucket", "minn",
    "maxn", "lrUpdateRate",
)  # fmt: skip
_PLAUSIBLE = (
    (1, 65536), (1, 1000), (1, 10**6), (0, 10**9), (0, 10**4), (1, 100), (1, 3), (1, 3),
    (0, 2**31 - 1), (0, 100), (0, 100), (0, 2**31 - 1),
)  # fmt: skip
_SUPERVISED = 3
_ENTRY = 10  # bytes of an empty word: its end, count and kind
_ROWS = 1 << 15


@njit(cache=True, nogil=True)
@no_type_check
def _scan_words(buffer, position, starts, stops):
    """The bounds of zero-ended words, each with 9 bytes behind it: (how many, where they end)."""
    for word in range(len(starts)):
        stop = position
        while stop < len(buffer) and buffer[stop] != 0:
            stop += 1
        if stop + 10 > len(buffer):
            return word, position
        starts[word] = position
        stops[word] = stop
        position = stop + 10
    return len(starts), position


class FasttextBinary(Format):
    """A fastText model, read only.

    >>> FasttextBinary().recognizes(b"\\xba\\x16\\x4f\\x2f\\x0c\\x00\\x00\\x00")
    True
    """

    def recognizes(self, head: bytes) -> bool:
        """The mark that fastText puts first, or the settings of a file from before the mark."""
        return head.startswith(_MAGIC) or _is_unversioned(head)

    def read(self, path: Path, reading: Reading) -> Table:
        """The table in `path`, with `subwords` unless the model was trained without them."""
        with Source(path) as source:
            if source.compressed or not path.stat().st_size:
                data = np.frombuffer(source.read(), np.uint8)
            else:
                data = np.memmap(path, np.uint8, "r")
        return _read(path, np.asarray(data), reading)


def _is_unversioned(head: bytes) -> bool:
    """Whether `head` holds settings as they stood first in files of before version 11."""
    if len(head) < 56:
        return False
    *settings, threshold = struct.unpack("<12id", head[:56])
    within = all(
        low <= value <= high for value, (low, high) in zip(settings, _PLAUSIBLE, strict=True)
    )
    return within and settings[9] <= settings[10] and 0 < threshold <= 1


def _read(path: Path, data: np.ndarray, reading: Reading) -> Table:
    def unpack(layout: str, at: int, what: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if at + size > len(data):
            raise DataError(f"{path} is cut: it ends after {len(data)} bytes, within its {what}")
        return struct.unpack(layout, data[at : at + size].tobytes())

    if _is_unversioned(data[:56].tobytes()):
        raise DataError(
            f"{path} is a fastText model of a version older than 11, of before 2017, whose files "
            "bear no version; known: 11, 12. Save its vectors as .vec with the fastText that wrote "
            "it, or train anew"
        )
    if data[:4].tobytes() != _MAGIC:
        raise DataError(f"{path} is no fastText model: it lacks the mark at its start")
    (version,) = unpack("<i", 4, "version")
    if version not in (11, 12):
        raise DataError(f"{path}: fastText format version {version}; known: 11, 12")
    settings = dict(zip(_SETTINGS, unpack("<12i", 8, "settings"), strict=True))
    size, minn, maxn = settings["dim"], settings["minn"], settings["maxn"]
    if version == 11 and settings["model"] == _SUPERVISED:
        maxn = 0
    entries, words, _, _, pruned = unpack("<iiiqq", 64, "settings")
    if size < 1 or not 0 <= words <= entries <= len(data) // _ENTRY:
        raise DataError(
            f"{path} is damaged or cut: it announces {words} words of {size} numbers among "
            f"{entries} entries, in {len(data)} bytes"
        )
    starts, stops = np.empty(entries, np.int64), np.empty(entries, np.int64)
    found, position = _scan_words(data, 92, starts, stops)
    if found < entries:
        raise DataError(
            f"{path} is cut: it ends within its dictionary, after {found} of {entries} entries"
        )
    position += 8 * max(pruned, 0)
    (quantized,) = unpack("<?", position, "matrix")
    if quantized:
        raise DataError(
            f"{path} is a quantized fastText model (.ftz); regard reads full models (.bin) only, "
            "and a quantized one cannot be turned back: get the .bin that it was made from"
        )
    rows, columns = unpack("<qq", position + 1, "matrix")
    position += 17
    buckets = rows - words
    if columns != size or buckets not in (0, settings["bucket"]):
        raise DataError(
            f"{path} is damaged: a matrix of {rows} x {columns} where {words} words and "
            f"{settings['bucket']} n-gram rows of {size} are announced"
        )
    if position + 4 * rows * columns > len(data):
        complete = (len(data) - position) // (4 * columns)
        raise DataError(f"{path} is cut: it holds {complete} of the {rows} rows of its matrix")
    end = position + 4 * rows * columns
    matrix = data[position:end].view("<f4").reshape(rows, columns)
    if reading.strict:
        _, outputs, width = unpack("<?qq", end, "output matrix")
        if end + 17 + 4 * outputs * width > len(data):
            raise DataError(
                f"{path} is cut: it ends within its output matrix, which vectors do not need; load "
                "with errors='replace' to read them all the same"
            )

    faults = Faults(path, reading)
    kept = words if reading.limit is None else min(words, reading.limit)
    raw = [data[a:b].tobytes() for a, b in zip(starts[:kept], stops[:kept], strict=True)]
    counts = data[stops[:kept, None] + np.arange(1, 9)].view("<i8").reshape(kept)
    tokens = [faults.decode(word, f"word {row + 1}") for row, word in enumerate(raw)]
    subwords = None
    if buckets and maxn > 0:
        subwords = Subwords(matrix[words:], max(minn, 1), maxn)
    vectors = np.empty((kept, size), reading.dtype or np.float32)
    for first in range(0, kept, _ROWS):
        block = matrix[first : min(first + _ROWS, kept)]
        if subwords is not None:
            sums, ngrams = subwords.sums(raw[first : first + _ROWS])
            for row, word in enumerate(raw[first : first + _ROWS]):
                if word == b"</s>":
                    sums[row], ngrams[row] = 0, 0
            block = (block + sums) / (1 + ngrams)[:, None].astype(np.float32)
        if not np.isfinite(block).all():
            row = first + int(np.flatnonzero(~np.isfinite(block).all(1))[0])
            raise DataError(
                f"{path}, word {tokens[row]!r}: its vector holds a number that is not finite"
            )
        vectors[first : first + _ROWS] = block
    table = without_repeats(path, tokens, vectors, counts)
    table.subwords = subwords
    return table
