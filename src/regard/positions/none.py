"""No encoding at all: the model sees a bag of tokens, except through its mask.

Haviv et al., "Transformer Language Models without Positional Encodings Still Learn Positional
Information" (2022), and Kazemnejad et al., "The Impact of Positional Encoding on Length
Generalization in Transformers" (2023), section 3, where it is called NoPE: a causal mask alone
tells a decoder where it is.
"""

from regard.positions._encoding import Encoding


class None_(Encoding):  # noqa: N801
    """Acts nowhere.

    >>> import torch
    >>> from regard import positions
    >>> x = torch.rand(2, 3, 5)
    >>> positions.create("none")(x) is x
    True
    """
