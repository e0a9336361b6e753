"""Masks: which keys a query may attend to. One file a mask; composed with ``&``, ``|``, ``~``.

True = may attend. A mask is a rule over integer positions or data by index, evaluated on any
rectangle of rows and columns on demand, so that no T×T tensor is needed.

>>> Causal() & Window(128)
(Causal() & Window(128))
"""

from regard.attention.masks._mask import Mask, Rectangle, as_mask
from regard.attention.masks.arbitrary import Arbitrary
from regard.attention.masks.causal import Causal
from regard.attention.masks.documents import Documents
from regard.attention.masks.padding import Padding
from regard.attention.masks.prefix import Prefix
from regard.attention.masks.window import Window

__all__ = [
    "Arbitrary",
    "Causal",
    "Documents",
    "Mask",
    "Padding",
    "Prefix",
    "Rectangle",
    "Window",
    "as_mask",
]
