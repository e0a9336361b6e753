"""How good word vectors are: similarity judged by people, and analogies."""

from regard.vectors.evaluation.analogies import (
    AnalogyResult,
    AnalogySection,
    chinese_analogies,
    evaluate_analogies,
)
from regard.vectors.evaluation.correlation import pearson, spearman
from regard.vectors.evaluation.kind import kind_of_set
from regard.vectors.evaluation.similarity import SimilarityResult, evaluate_similarity

__all__ = [
    "AnalogyResult",
    "AnalogySection",
    "SimilarityResult",
    "chinese_analogies",
    "evaluate_analogies",
    "evaluate_similarity",
    "kind_of_set",
    "pearson",
    "spearman",
]
