"""What regard's own models answer to texts, as rows of logits.

A classifier has a row a text, a tagger a row a token, and what writes (a language model, an
encoder–decoder) a row for each token that it writes and the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import OptionError
from regard.models import EncoderDecoder, LanguageModel, Tagger


def logits(model: Any, given: Mapping[str, Any]) -> Float[Tensor, "rows classes"]:
    """The rows of all texts. `given`: texts, and targets for an encoder–decoder."""
    if isinstance(model, EncoderDecoder) and given.keys() != {"texts", "targets"}:
        raise OptionError(
            "what an encoder–decoder answers is asked with what it reads and writes: "
            '{"texts": […], "targets": […]}'
        )
    found = model.logits(**given)
    return found if isinstance(found, Tensor) else torch.cat(found)


def labels(model: Any) -> tuple[str, ...] | None:
    """The names of the classes, where there are any."""
    if isinstance(model, Tagger):
        return model.tags
    if isinstance(model, EncoderDecoder):
        return tuple(model.target_vocabulary.tokens)
    if isinstance(model, LanguageModel):
        return tuple(model.vocabulary.tokens)
    return getattr(model, "labels", None)


def written(model: Any, given: Any) -> Int[Tensor, " rows"] | None:
    """The right answers of a model that writes, by the texts themselves; None for other models."""
    if isinstance(model, EncoderDecoder) and isinstance(given, Mapping):
        ids = model.encode_targets(given["targets"])
    elif isinstance(model, LanguageModel) and not callable(given):
        ids = model.encode([given] if isinstance(given, str) else list(given))
    else:
        return None
    return torch.cat([row[1:] for row in ids])


def examples(model: Any, data: Sequence[Any]) -> tuple[Mapping[str, Any], list[Any] | Tensor]:
    """A data set as what goes in and the right answer of each row.

    `data`: texts for a language model; else pairs: of a text and its label, of tokens and their
    tags, of a text and what is to be written.
    """
    if isinstance(model, LanguageModel):
        right = written(model, data)
        assert right is not None
        return {"texts": list(data)}, right
    texts, seconds = (list(part) for part in zip(*data, strict=True))
    if isinstance(model, EncoderDecoder):
        given = {"texts": texts, "targets": seconds}
        right = written(model, given)
        assert right is not None
        return given, right
    if isinstance(model, Tagger):
        return {"texts": texts}, [tag for tags in seconds for tag in tags]
    return {"texts": texts}, seconds
