"""Inspection: what a model attends to, exactly, as it runs.

`trace` runs a model on a text and gives a `Trace`. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.inspection.atlas import Atlas
    from regard.inspection.attribution import relevance
    from regard.inspection.comparison import compare
    from regard.inspection.interventions import edit, head_importance
    from regard.inspection.record import AttentionRecord
    from regard.inspection.tracing import Trace, trace, trace_windows
    from regard.inspection.watching import watch

_HOME = {
    "Atlas": "regard.inspection.atlas",
    "AttentionRecord": "regard.inspection.record",
    "Trace": "regard.inspection.tracing",
    "compare": "regard.inspection.comparison",
    "edit": "regard.inspection.interventions",
    "head_importance": "regard.inspection.interventions",
    "relevance": "regard.inspection.attribution",
    "trace": "regard.inspection.tracing",
    "trace_windows": "regard.inspection.tracing",
    "watch": "regard.inspection.watching",
}

__all__ = [
    "Atlas",
    "AttentionRecord",
    "Trace",
    "compare",
    "edit",
    "head_importance",
    "relevance",
    "trace",
    "trace_windows",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
