"""The file formats of word vectors: one file a format, recognized by what a file holds.

==================== ============================================== =============
name                 what                                           written
==================== ============================================== =============
``word2vec_text``    a header ``rows size``, then a word a line;    ``.txt .vec``
                     fastText's ``.vec`` is the same
``word2vec_binary``  the same header, then raw numbers              ``.bin``
``glove``            word2vec's text without its header             ``.glove``
``fasttext_binary``  a whole fastText model, n-grams included       read only
``safetensors``      regard's own: opened without being read        ``.safetensors``
==================== ============================================== =============

All but regard's own may be compressed: ``.gz`` or ``.zst`` after the suffix when written, told by
the first bytes when read.
"""

from pathlib import Path

from regard.errors import DataError, OptionError
from regard.family import Family
from regard.vectors.formats._files import COMPRESSIONS, check_place, head, uncompressed_suffix
from regard.vectors.formats._format import Format

_family: Family[Format] = Family("vector format", __name__)
names = _family.names
get = _family.get
create = _family.create


def recognize(path: Path) -> Format:
    """The format of the file `path`, told by its first bytes; `DataError` if it is no vectors."""
    beginning = head(path)
    if not beginning:
        raise DataError(f"{path} is empty; a file of word vectors holds at least a header")
    for name in ("safetensors", "fasttext_binary", "word2vec_text", "word2vec_binary", "glove"):
        form = create(name)
        if form.recognizes(beginning):
            return form
    if beginning[0] == 0x80:
        raise DataError(
            f"{path} is a Python pickle, such as gensim's save() writes; regard opens no pickles: "
            "write the vectors with gensim's save_word2vec_format"
        )
    raise DataError(
        f"{path} is no file of word vectors: it begins with {beginning[:16]!r}; "
        f"known formats: {', '.join(names())}"
    )


def check_output(path: Path) -> None:
    """Refuse a `path` that no vectors can be written to: by its suffix, or as it stands on disk."""
    for_writing(path)
    check_place(path)


def for_writing(path: Path, name: str | None = None) -> Format:
    """The format `name`, or that which the suffix of `path` asks for; without one, regard's own."""
    if name is None:
        suffix = uncompressed_suffix(path)
        known: dict[str, str] = {}
        for each in names():
            known |= dict.fromkeys(get(each).suffixes, each)
        if suffix and suffix not in known:
            raise OptionError(
                f"{path}: the suffix {suffix!r} names no vector format; known: "
                f"{', '.join(sorted(known))}; or give format=…, one of: {', '.join(names())}"
            )
        name = known.get(suffix, "safetensors")
    form = create(name)
    packed = path.suffix.lower()
    if packed in COMPRESSIONS and not form.compressible:
        raise OptionError(
            f"{path}: regard's own format is opened without being read, so it is not compressed; "
            f"leave out {packed}, or save as .txt{packed} or .bin{packed}"
        )
    return form
