"""The command line: ``regard demo | train | evaluate | predict | plot | vectors | …``.

One file a command. What goes wrong is one line, ``regard: …``, and exit status 2.
"""

import os
import sys
from io import TextIOWrapper

from cyclopts import App, CycloptsError

from regard import __version__
from regard.errors import RegardError

COMMANDS = {
    "demo": "Train on Chinese reviews and explain two predictions.",
    "train": "Train a model on texts.",
    "evaluate": "Measure a trained model on texts.",
    "predict": "Label, tag or rewrite texts with a trained model.",
    "generate": "Let a trained language model write on.",
    "plot": "Draw figures.",
    "trace": "Show what a model attends to in a text.",
    "vectors": "Train word vectors, ask them, judge them, convert their files.",
}
"""Modules of this package; each has an `app`, imported when its command is given."""


def application() -> App:
    """The command-line application with all its commands."""
    app = App(
        name="regard",
        version=__version__,
        help="Text in, attention out, every number in view.",
        suppress_keyboard_interrupt=False,
    )
    for name, summary in COMMANDS.items():
        app.command(f"regard.cli.{name}:app", name=name, help=summary)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that lacks a character gets its code, not a failure.
            stream.reconfigure(errors="backslashreplace")
    app = application()
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _refuse(_plain(error))
    except RegardError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        print("regard: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (regard … | head): nothing more to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _plain(error: CycloptsError) -> str:
    """What is wrong as one line; of settings that were refused, only the reasons."""
    from pydantic import ValidationError

    from regard.models.settings import mistakes

    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return " ".join(str(error).split())
    reasons = [item.get("ctx", {}).get("error") for item in cause.errors()]
    if all(isinstance(reason, RegardError) for reason in reasons):
        return "; ".join(map(str, reasons))
    return mistakes(cause)


def _refuse(message: str) -> int:
    print(f"regard: {message}", file=sys.stderr)
    return 2
