"""Word vectors: trained, used, saved, judged. NumPy and Numba only; torch is never imported.

`Word2Vec` trains, `WordVectors` holds the result or a file's; ``formats`` are the file formats,
``evaluation`` compares vectors with people's judgments. A name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.vectors.word2vec import Word2Vec
    from regard.vectors.word_vectors import Neighbor, UnknownWordError, WordVectors

__all__ = ["Neighbor", "UnknownWordError", "Word2Vec", "WordVectors"]

_HOMES = {
    "Neighbor": "word_vectors",
    "UnknownWordError": "word_vectors",
    "Word2Vec": "word2vec",
    "WordVectors": "word_vectors",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"regard.vectors.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'regard.vectors' has no attribute {name!r}")
