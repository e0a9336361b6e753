"""``regard generate``: a language model writes on."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from regard.errors import OptionError

app = App(name="generate", help="Let a trained language model write on.")


@app.default
def generate(
    run: Path,
    text: str = "",
    /,
    *,
    tokens: int = 50,
    temperature: float = 1.0,
    top: int | None = None,
    seed: int | None = None,
    slide: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Let a trained language model write on: prints the text and what comes after it.

    Parameters
    ----------
    run
        The folder that regard train language wrote.
    text
        The beginning; nothing for a new line.
    tokens
        How many tokens to write at most; fewer if the model ends the line.
    temperature
        0 takes the most probable token every time; below 1 favors probable tokens, above 1 the
        others.
    top
        Draw among so many most probable tokens only.
    seed
        The same seed, the same text.
    slide
        When the model is full, forget the oldest half of what it has read, and go on.
    json
        Print JSON.
    """
    from json import dumps

    from regard.models import load

    model = load(run)
    if model.settings.task != "language":
        raise OptionError(f"{run} holds {model.kind}, which does not write on: regard predict")
    written = model.generate(text, tokens, temperature=temperature, top=top, seed=seed, slide=slide)
    if json:
        print(dumps({"text": text, "generated": written}, ensure_ascii=False))
    else:
        print(text + written)
