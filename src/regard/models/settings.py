"""What a model is made of: the Python arguments, the flags and the saved ``config.json`` in one.

Every class refuses settings that it does not know. The texts under the fields are the flags' help.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import OptionError

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]


Made = TypeVar("Made", bound=BaseModel)


class Settings(BaseModel):
    """The base of all settings: unknown names and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _from_base(cls, values: Any) -> Any:
        """Settings of a base class will do: what was set there, and our own defaults."""
        if isinstance(values, Settings) and issubclass(cls, type(values)):
            return {name: getattr(values, name) for name in values.model_fields_set}
        return values

    @classmethod
    def read(cls: type[Made], values: dict[str, Any], source: str) -> Made:
        """Settings from plain `values`; an `OptionError` that names `source` and each mistake."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise OptionError(f"{source}: {mistakes(error)}") from None


def mistakes(error: ValidationError) -> str:
    """Pydantic's findings as one line: where, what is wrong, what arrived."""
    found = []
    for item in error.errors():
        place = ".".join(map(str, item["loc"]))
        message = item["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        if item["type"] == "extra_forbidden":
            found.append(f"unknown setting {place!r}")
        elif item["type"] == "missing":
            found.append(f"{place} is missing")
        else:
            found.append(f"{place}: {message}, got {item['input']!r}")
    return "; ".join(found)


class TextSettings(Settings):
    """How text becomes ids."""

    segmenter: str = "jieba"
    """How text is cut into tokens: characters, whitespace, words, jieba, or the trained bpe,
    wordpiece, unigram."""
    subwords: Count = 8000
    """Size of a trained segmenter's vocabulary."""
    normalization: Literal["none", "nfkc"] = "nfkc"
    """Unicode normalization before segmenting."""
    lowercase: bool = True
    """Lower-case letters before segmenting."""
    min_count: Count = 2
    """Tokens seen less often in training become the unknown token."""
    max_size: Annotated[int, Field(ge=3)] | None = 50_000
    """Largest vocabulary, special tokens included."""
    max_tokens: Count = 256
    """Longer texts are cut to their first max-tokens tokens."""


class EncoderSettings(Settings):
    """The layers between ids and the task head."""

    width: Count = 96
    """D, the numbers a token has."""
    heads: Count = 4
    """Attention heads of a layer; they divide the width."""
    kv_heads: Count | None = None
    """Key/value heads, shared by groups of heads; as many as heads if not given."""
    layers: Count = 2
    """Blocks of self-attention and fully connected layers."""
    hidden: Count | None = None
    """Width inside the fully connected layers; four times the width if not given."""
    score: str = "scaled_dot"
    """Score function of the attention."""
    normalizer: str = "softmax"
    """What turns scores into weights."""
    position: str = "sinusoidal"
    """Position encoding."""
    dropout: Share = 0.2
    """Share of activations dropped in training."""


class DecoderSettings(EncoderSettings):
    """The layers of a model that writes: each token attends to those before it."""

    position: str = "rotary"
    """Position encoding."""
    dropout: Share = 0.1
    """Share of activations dropped in training."""


class StackSettings(EncoderSettings):
    """The layers of an encoder, and those of the decoder beside it."""

    dropout: Share = 0.1
    """Share of activations dropped in training."""


class ClassifierSettings(Settings):
    """A text classifier: ``config.json`` holds these."""

    task: Literal["classify"] = "classify"
    text: TextSettings = TextSettings()
    encoder: EncoderSettings = EncoderSettings()
    labels: tuple[str, ...] = ()
    """The answers, in the order of the model's outputs."""


class TaggerSettings(Settings):
    """A model that gives each token a tag."""

    task: Literal["tag"] = "tag"
    text: TextSettings = TextSettings()
    encoder: EncoderSettings = EncoderSettings()
    tags: tuple[str, ...] = ()
    """The answers, in the order of the model's outputs."""


class LanguageTextSettings(TextSettings):
    """How text becomes ids that become text again."""

    segmenter: str = "characters"
    """How text is cut into tokens: characters, whitespace, words, jieba, or the trained bpe,
    wordpiece, unigram."""
    lowercase: bool = False
    """Lower-case letters before segmenting."""
    max_tokens: Count = 256
    """How many tokens the model reads at once, the special ones included."""


class LanguageModelSettings(Settings):
    """A model that says how likely each next token is."""

    task: Literal["language"] = "language"
    text: LanguageTextSettings = LanguageTextSettings()
    decoder: DecoderSettings = DecoderSettings()


class EncoderDecoderSettings(Settings):
    """A model that reads one text and writes another; its two stacks are of the same sizes."""

    task: Literal["sequence"] = "sequence"
    text: LanguageTextSettings = LanguageTextSettings()
    """How the text that is read becomes ids."""
    target: LanguageTextSettings | None = None
    """How the text that is written becomes ids; like the other if not given."""
    encoder: StackSettings = StackSettings()
    """The layers of the encoder, and those of the decoder."""

    @property
    def target_text(self) -> LanguageTextSettings:
        """How the text that is written becomes ids."""
        return self.text if self.target is None else self.target
