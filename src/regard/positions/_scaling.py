"""How rotary frequencies are stretched past the length a model was trained for.

A scaling gives, for texts of given lengths, the angle θ_i by which pair i turns at each step.
Unscaled, θ_i = base^(−2i / width).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import OptionError, unknown_name
from regard.positions._encoding import check_at_least, precise


@dataclass(frozen=True)
class Unscaled:
    """The frequencies as they are: Su et al., "RoFormer" (2021), equation 15."""

    by_length: ClassVar[bool] = False

    def __post_init__(self):
        settings = vars(self)
        for name, least in (("factor", 1), ("trained_length", 2), ("share", 0)):
            if name in settings:
                check_at_least(name, settings[name], least)
        if "fast" in settings and not settings["fast"] > settings["slow"]:
            raise OptionError(
                f"fast must be more turns than slow, got fast={settings['fast']}, "
                f"slow={settings['slow']}"
            )

    @property
    def multiplier(self) -> float | int:
        """What cosines and sines are multiplied by."""
        return 1.0

    def frequencies(
        self, base: float | int, width: int, lengths: Int[Tensor, "*texts 1"]
    ) -> Float[Tensor, "*_ pairs"]:
        """θ of width / 2 pairs, the same for all texts unless it depends on their lengths."""
        return _unscaled(base, width, lengths)


@dataclass(frozen=True)
class Linear(Unscaled):
    """Every θ divided by the factor, as if positions lay closer.

    Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation"
    (2023), equation 4.
    """

    factor: float | int

    def frequencies(self, base, width, lengths):
        """θ / factor."""
        return _unscaled(base, width, lengths) / self.factor


@dataclass(frozen=True)
class Ntk(Unscaled):
    """The base raised until the slowest pair is slowed by the factor; the fastest stays.

    Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models" (2023),
    section 3.1 (definition 1), base′ = base · factor^(width / (width − 2)).
    """

    factor: float | int

    def frequencies(self, base, width, lengths):
        """θ of the raised base."""
        return _raised(base, width, lengths, self.factor)


@dataclass(frozen=True)
class Dynamic(Unscaled):
    """`Ntk` with a factor that grows with the text: none up to the trained length.

    Peng et al. (2023), section 3.3, with the factor that published models are run with:
    factor · length / trained_length − (factor − 1).
    """

    factor: float | int
    trained_length: int
    by_length: ClassVar[bool] = True

    def frequencies(self, base, width, lengths):
        """θ of the base raised for each length."""
        stretch = lengths.clamp(min=self.trained_length).to(precise(lengths.device))
        stretch = stretch / self.trained_length
        return _raised(base, width, lengths, self.factor * stretch - (self.factor - 1))


@dataclass(frozen=True)
class Yarn(Unscaled):
    """Pairs that turn often are left, those that turn rarely are divided by the factor.

    Between `fast` and `slow` turns over the trained length lies a ramp over the pairs, its ends
    rounded to whole pairs unless `rounded` is off. Cosines and sines are multiplied by
    0.1 · ln(factor) + 1 unless `attention_factor` says otherwise. Peng et al. (2023), sections 3.2
    and 3.4, equations 18 to 22.
    """

    factor: float | int
    trained_length: int
    fast: float | int = 32.0
    slow: float | int = 1.0
    rounded: bool = True
    attention_factor: float | int | None = None

    @property
    def multiplier(self) -> float | int:
        """0.1 · ln(factor) + 1."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0

    def frequencies(self, base, width, lengths):
        """θ on this side of the ramp, θ / factor on the other."""
        theta = _unscaled(base, width, lengths)
        first, last = (self._pair(turns, base, width) for turns in (self.fast, self.slow))
        if self.rounded:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        pairs = torch.arange(width // 2, device=theta.device)
        # A ramp of no length is a step.
        divided = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
        return theta * (1 - divided) + theta / self.factor * divided

    def _pair(self, turns, base, width):
        """The pair, as a fraction, that makes so many turns over the trained length."""
        slowdown = self.trained_length / (turns * 2 * math.pi)
        return width * math.log(slowdown) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3(Unscaled):
    """Short wavelengths are left, long ones stretched by the factor, a ramp lies between.

    The ramp is over the number of turns in the trained length, from `fast` to `slow`. Dubey et al.,
    "The Llama 3 Herd of Models" (2024), section 3.4.2, where the base is raised; the formula is
    that of the code published with Llama 3.1.
    """

    factor: float | int
    trained_length: int
    fast: float | int = 4.0
    slow: float | int = 1.0

    def frequencies(self, base, width, lengths):
        """θ on this side of the ramp, θ / factor on the other."""
        theta = _unscaled(base, width, lengths)
        turns = self.trained_length * theta / (2 * math.pi)
        left = ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)
        return theta * left + theta / self.factor * (1 - left)


@dataclass(frozen=True)
class Longrope(Unscaled):
    """A divisor for each pair: `short` for texts up to the trained length, `long` past it.

    Cosines and sines are multiplied by √(1 + ln(factor) / ln(trained_length)) unless
    `attention_factor` says otherwise. Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2
    Million Tokens" (2024), equation 4.
    """

    short: Sequence[float | int]
    long: Sequence[float | int]
    factor: float | int
    trained_length: int
    attention_factor: float | int | None = None
    by_length: ClassVar[bool] = True

    @property
    def multiplier(self) -> float | int:
        """√(1 + ln(factor) / ln(trained_length))."""
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.trained_length))

    def frequencies(self, base, width, lengths):
        """θ / divisor, by each text's length."""
        for name, divisors in (("short", self.short), ("long", self.long)):
            if len(divisors) != width // 2:
                raise OptionError(
                    f"rotary scaling 'longrope' needs {name} divisors for {width // 2} pairs of "
                    f"dimensions, got {len(divisors)}"
                )
        theta = _unscaled(base, width, lengths)
        short, long = (
            torch.tensor(list(divisors), dtype=theta.dtype, device=theta.device)
            for divisors in (self.short, self.long)
        )
        return theta / torch.where(lengths > self.trained_length, long, short)


@dataclass(frozen=True)
class Proportional(Unscaled):
    """Only the fastest `share` of the pairs turns; all are divided by the factor.

    Barbero et al., "Round and Round We Go! What makes Rotary Positional Encodings useful?" (2024),
    section 6, where it is called p-RoPE.
    """

    share: float | int
    factor: float | int = 1.0

    def frequencies(self, base, width, lengths):
        """θ / factor, zero for the slow pairs."""
        theta = _unscaled(base, width, lengths) / self.factor
        turning = torch.arange(width // 2, device=theta.device) < int(self.share * width // 2)
        return theta * turning


SCALINGS: Mapping[str, type[Unscaled]] = {
    "none": Unscaled,
    "linear": Linear,
    "ntk": Ntk,
    "dynamic": Dynamic,
    "yarn": Yarn,
    "llama3": Llama3,
    "longrope": Longrope,
    "proportional": Proportional,
}


def scaling(name: str, **settings: Any) -> Unscaled:
    """The scaling called `name`; `OptionError` for a setting it lacks or does not take."""
    if name not in SCALINGS:
        raise unknown_name("rotary scaling", name, SCALINGS)
    known = fields(SCALINGS[name])
    takes = ", ".join(f.name for f in known) or "none"
    for setting in settings.keys() - {f.name for f in known}:
        raise OptionError(
            f"rotary scaling {name!r} takes no setting {setting!r}; it takes: {takes}"
        )
    missing = [f.name for f in known if f.default is MISSING and f.name not in settings]
    if missing:
        raise OptionError(f"rotary scaling {name!r} needs: {', '.join(missing)}")
    return SCALINGS[name](**settings)


def _unscaled(base: float | int, width: int, lengths: Tensor) -> Tensor:
    """θ_i = base^(−2i / width)."""
    dtype = precise(lengths.device)
    pairs = torch.arange(width // 2, dtype=dtype, device=lengths.device)
    return base ** (-2 * pairs / width)


def _raised(base: float | int, width: int, lengths: Tensor, factor: Tensor | float | int) -> Tensor:
    """θ of base · factor^(width / (width − 2))."""
    if width < 4:
        # A single pair is the fastest, and stays.
        return _unscaled(base, width, lengths)
    # (factor^(width / (width − 2)))^(−2i / width) = factor^(−2i / (width − 2))
    pairs = torch.arange(width // 2, dtype=precise(lengths.device), device=lengths.device)
    return _unscaled(base, width, lengths) * factor ** (-2 * pairs / (width - 2))
