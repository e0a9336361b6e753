"""chrF: how much the characters of two texts agree, by n-grams.

Popović, "chrF: character n-gram F-score for automatic MT evaluation" (2015), with n from 1 to 6 and
β = 2 (recall counts twice as much as precision). White space is left out. Counts are summed over
all pairs of texts before precision and recall are taken.
"""

from collections import Counter
from collections.abc import Sequence

ORDER = 6
BETA = 2


def chrf(written: Sequence[str], wanted: Sequence[str]) -> float:
    """The F-score of `written` against `wanted`, text by text, from 0 to 1.

    >>> chrf(["the cat"], ["the cat"]), chrf(["abc"], ["xyz"])
    (1.0, 0.0)
    """
    precisions, recalls = [], []
    pairs = [
        ("".join(mine.split()), "".join(true.split()))
        for mine, true in zip(written, wanted, strict=True)
    ]
    for n in range(1, ORDER + 1):
        hits = mine_total = true_total = 0
        for mine, true in pairs:
            mine_grams, true_grams = _grams(mine, n), _grams(true, n)
            hits += (mine_grams & true_grams).total()
            mine_total += mine_grams.total()
            true_total += true_grams.total()
        if mine_total and true_total:
            precisions.append(hits / mine_total)
            recalls.append(hits / true_total)
    if not any(precisions):
        return 0.0
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))
