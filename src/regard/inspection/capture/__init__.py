"""Capture: what each attention of a model was given and gave, seen from outside as it runs.

`Captured` is one call of one attention for a whole batch. A file here knows one way in:
`interface` (transformers' attention interface), `bloom` and `mpnet` (families that bypass it),
`multihead` (regard's own attention), `torch_multihead` (PyTorch's). `recover` turns captured masks
and biases into rules; `assemble` makes records of what was captured.
"""

from regard.inspection.capture._captured import Captured

__all__ = ["Captured"]
