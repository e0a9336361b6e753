"""Inspection: what a model attends to, exactly, as it runs.

`trace` runs a model on a text and gives a `Trace`. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.inspection.record import AttentionRecord
    from regard.inspection.tracing import Trace, trace, trace_windows
    from regard.inspection.watching import watch

_HOME = {
    "AttentionRecord": "regard.inspection.record",
    "Trace": "regard.inspection.tracing",
    "trace": "regard.inspection.tracing",
    "trace_windows": "regard.inspection.tracing",
    "watch": "regard.inspection.watching",
}

__all__ = ["AttentionRecord", "Trace", "trace", "trace_windows", "watch"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
