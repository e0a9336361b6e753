"""Text in, attention out, every number in view.

The names below are imported when first used: ``import regard`` alone costs almost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import attention, inspection, models, plots, positions, text, training, vectors
    from regard.attention import MultiHeadAttention, attend, explain_path
    from regard.inspection import Trace, edit, head_importance, trace, trace_windows, watch
    from regard.models import load
    from regard.positions.sinusoidal import PositionalEncoding
    from regard.training import ClassifyConfig, LanguageConfig, SequenceConfig, TagConfig, fit
    from regard.vectors import Word2Vec, WordVectors

__version__ = "0.1.0"

_HOME = {
    "ClassifyConfig": "regard.training",
    "LanguageConfig": "regard.training",
    "MultiHeadAttention": "regard.attention",
    "PositionalEncoding": "regard.positions.sinusoidal",
    "SequenceConfig": "regard.training",
    "TagConfig": "regard.training",
    "Trace": "regard.inspection",
    "Word2Vec": "regard.vectors",
    "WordVectors": "regard.vectors",
    "attend": "regard.attention",
    "edit": "regard.inspection",
    "explain_path": "regard.attention",
    "fit": "regard.training",
    "head_importance": "regard.inspection",
    "load": "regard.models",
    "trace": "regard.inspection",
    "trace_windows": "regard.inspection",
    "watch": "regard.inspection",
}
_FOLDERS = (
    "attention",
    "inspection",
    "models",
    "plots",
    "positions",
    "text",
    "training",
    "vectors",
)

__all__ = [
    "ClassifyConfig",
    "LanguageConfig",
    "MultiHeadAttention",
    "PositionalEncoding",
    "SequenceConfig",
    "TagConfig",
    "Trace",
    "Word2Vec",
    "WordVectors",
    "attend",
    "attention",
    "edit",
    "explain_path",
    "fit",
    "head_importance",
    "inspection",
    "load",
    "models",
    "plots",
    "positions",
    "text",
    "trace",
    "trace_windows",
    "training",
    "vectors",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return import_module(f"regard.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_FOLDERS, *_HOME]
