"""Where commands print tables and text with style."""

from rich import console


class Console(console.Console):
    """rich's console; when the reader goes away (``regard … | head``), `main` ends the command."""

    def on_broken_pipe(self) -> None:
        """Let `main` know; rich itself would exit with status 1."""
        raise BrokenPipeError
