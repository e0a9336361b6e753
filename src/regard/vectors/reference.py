"""word2vec in plain NumPy, float64, one word after the other: what the kernels must compute.

Sources: Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space" and
"Distributed Representations of Words and Phrases and their Compositionality". The random choices
are the kernels' (`Draws`), so that both can be compared number by number.
"""

import numpy as np

from regard.vectors.kernels.state import (
    CLIP,
    PIECE,
    RATE_EVERY,
    Corpus,
    Noise,
    Rules,
    Tables,
    Tree,
    seeds,
)


class Draws:
    """One of the kernels' generators: xorshift with 64 bits of state."""

    def __init__(self, state: int):
        self.state = state

    def bits(self) -> int:
        """The next 64 bits."""
        x = self.state
        x ^= (x << 13) & (2**64 - 1)
        x ^= x >> 7
        x ^= (x << 17) & (2**64 - 1)
        self.state = x
        return x

    def below(self, bound: int) -> int:
        """An integer from 0 to ``bound - 1``."""
        return ((self.bits() >> 32) * bound) >> 32

    def negatives(self, alias: np.ndarray, count: int, center: int) -> list[int]:
        """`center` and `count` draws by the alias table, repeats dropped."""
        words = [center]
        for _ in range(count):
            x = self.bits()
            word = ((x >> 32) * len(alias)) >> 32
            if (x & 0xFFFFFFFF) > alias[word, 0]:
                word = int(alias[word, 1])
            if word not in words:
                words.append(word)
        return words


def loss_of(scores: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """-log σ(sign · score), the score clipped; 0 where the sign is 0."""
    x = np.clip(signs * scores, -CLIP, CLIP)
    return np.where(signs == 0, 0.0, np.log1p(np.exp(-x)))


def slope_of(scores: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Minus the derivative of the loss by the score: sign · (1 - σ(sign · score))."""
    x = np.clip(signs * scores, -CLIP, CLIP)
    return signs / (1.0 + np.exp(x))


class Reference:
    """Trains `tables` (float64, without padding) over a corpus, one word after the other.

    `losses` are the sums for negative sampling and for the tree, `examples` what they divide by.
    """

    def __init__(
        self, rules: Rules, corpus: Corpus, tables: Tables, noise: Noise, tree: Tree, seed: int
    ):
        self.rules, self.corpus, self.tables = rules, corpus, tables
        self.noise, self.tree = noise, tree
        self.draws, self.noise_draws = (Draws(int(state)) for state in seeds(seed))
        self.done, self.rate_at, self.rate = 0, 0, 0.0
        self.losses, self.examples = np.zeros(2), 0

    def train(self, begin: int, end: int) -> None:
        """Learn from the words `begin` to ``end - 1``."""
        rules, offsets = self.rules, self.corpus.offsets
        while begin < end:
            line = int(np.searchsorted(offsets, begin, side="right")) - 1
            stop = min(int(offsets[line + 1]), end, begin + PIECE)
            if self.done >= self.rate_at:
                fall = (rules.alpha - rules.min_alpha) * self.done / rules.total
                self.rate = max(rules.min_alpha, rules.alpha - fall)
                self.rate_at = self.done + RATE_EVERY
            kept, first, last = self.keep(begin, stop, int(offsets[line]), int(offsets[line + 1]))
            (self.cbow if rules.cbow else self.skipgram)(kept, first, last)
            self.done += stop - begin
            begin = stop

    def keep(
        self, begin: int, end: int, line_begin: int, line_end: int
    ) -> tuple[list[int], int, int]:
        """The kept words of a piece, with context from the same line; first and end of centers."""
        before: list[int] = []
        place = begin
        while place > line_begin and len(before) < self.rules.window:
            place -= 1
            before = self.take(place) + before
        words = [word for place in range(begin, end) for word in self.take(place)]
        after: list[int] = []
        place = end
        while place < line_end and len(after) < self.rules.window:
            after += self.take(place)
            place += 1
        return before + words + after, len(before), len(before) + len(words)

    def take(self, place: int) -> list[int]:
        """The word at a place, or none if it is passed over."""
        word = int(self.corpus.ids[place])
        if len(self.corpus.rows):
            word = int(self.corpus.rows[word])
        if word < 0:
            return []
        keep = self.corpus.keep
        return [word] if len(keep) == 0 or self.draws.bits() >> 32 <= int(keep[word]) else []

    def window(self, kept: list[int], center: int) -> list[int]:
        """The context words of a center."""
        reach = self.rules.window
        if self.rules.shrink_window:
            reach -= self.draws.below(reach)
        return kept[max(0, center - reach) : center] + kept[center + 1 : center + 1 + reach]

    def path(self, word: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `inner` on the way to a word, and their signs."""
        piece = slice(self.tree.starts[word], self.tree.starts[word + 1])
        return self.tree.points[piece], self.tree.signs[piece].astype(np.float64)

    def drawn(self, word: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `output` of a center and its negatives, and their signs."""
        rows = self.noise_draws.negatives(self.noise.alias, self.rules.negatives, word)
        return np.array(rows), np.array([1.0] + [-1.0] * (len(rows) - 1))

    def skipgram(self, kept: list[int], first: int, last: int) -> None:
        """Each context word against the center and negatives, and against the center's path."""
        tables, rules = self.tables, self.rules
        for center in range(first, last):
            word, contexts = kept[center], self.window(kept, center)
            if not contexts:
                continue
            old = tables.input[contexts]
            if rules.negatives:
                each = [list(range(len(contexts)))]
                if not rules.shared:
                    each = [[i] for i in each[0]]
                for members in each:
                    rows, signs = self.drawn(word)
                    signs = np.tile(signs, (len(members), 1))
                    change, loss = self.block(old[members], tables.output, rows, signs)
                    np.add.at(tables.input, np.array(contexts)[members], change)
                    self.losses[0] += loss
            if rules.tree:
                rows, signs = self.path(word)
                signs = np.tile(signs, (len(contexts), 1))
                change, loss = self.block(old, tables.inner, rows, signs)
                np.add.at(tables.input, contexts, change)
                self.losses[1] += loss
            self.examples += len(contexts)

    def block(
        self, old: np.ndarray, table: np.ndarray, rows: np.ndarray, signs: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Learn rows of `table` against `old`; returns what is due to `old`, and the loss."""
        scores = old @ table[rows].T
        steps = self.rate * slope_of(scores, signs)
        change = steps @ table[rows]
        table[rows] += steps.T @ old
        return change, float(loss_of(scores, signs).sum())

    def cbow(self, kept: list[int], first: int, last: int) -> None:
        """The sum or mean of the contexts against the center and negatives, and its path."""
        tables, rules = self.tables, self.rules
        for center in range(first, last):
            word, contexts = kept[center], self.window(kept, center)
            if not contexts:
                continue
            old = tables.input[contexts].sum(axis=0, keepdims=True)
            if rules.mean:
                old /= len(contexts)
            change = np.zeros_like(old)
            if rules.negatives:
                rows, signs = self.drawn(word)
                due, loss = self.block(old, tables.output, rows, signs[None])
                change += due
                self.losses[0] += loss
            if rules.tree:
                rows, signs = self.path(word)
                due, loss = self.block(old, tables.inner, rows, signs[None])
                change += due
                self.losses[1] += loss
            np.add.at(tables.input, contexts, change / len(contexts) if rules.divide else change)
            self.examples += 1
