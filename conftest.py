"""Runs the documents: every fenced ``python`` and ``sh`` block of a Markdown page, top to bottom.

A guide runs in an empty folder, its Python blocks in one namespace. The pages of the root folder
(README, CONTRIBUTING) run where they stand; there, the commands that run this very check are only
looked up (``make --dry-run``).
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent
CALLERS = re.compile(r"^make (test|check|bench|docs)\b", re.MULTILINE)
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line it begins on."""

    language: str
    text: str
    line: int


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A Markdown page is a file of tests."""
    if file_path.suffix == ".md":
        return Page.from_parent(parent, path=file_path)
    return None


class Page(pytest.File):
    """One Markdown page; it is one test if it has blocks to run."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item for the page, none if it has nothing to run."""
        if blocks(self.path.read_text(encoding="utf-8")):
            yield Document.from_parent(self, name=self.path.name)


class Document(pytest.Item):
    """The blocks of a page, run in order."""

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.add_marker(pytest.mark.timeout(900))

    def runtest(self) -> None:
        """Run every block."""
        factory = self.session.config._tmp_path_factory  # type: ignore[attr-defined]
        in_place = self.path.parent == ROOT
        folder = ROOT if in_place else factory.mktemp(self.path.stem)
        namespace: dict[str, object] = {"__name__": "__main__"}
        before = Path.cwd()
        os.chdir(folder)
        try:
            for block in blocks(self.path.read_text(encoding="utf-8")):
                if block.language == "sh":
                    self.run_shell(block, folder, in_place)
                else:
                    lines = "\n" * block.line + block.text
                    exec(compile(lines, str(self.path), "exec"), namespace)
        finally:
            os.chdir(before)

    def run_shell(self, block: Block, folder: Path, in_place: bool) -> None:
        """Run a shell block as a script that stops at the first error."""
        script = CALLERS.sub(r"make --dry-run \1", block.text) if in_place else block.text
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout)
        if done.returncode:
            raise AssertionError(
                f"{self.path}:{block.line}: exit status {done.returncode}\n{script}\n{done.stderr}"
            )

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the page is."""
        return self.path, 0, str(self.path.relative_to(ROOT))


def blocks(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    found = [
        Block(match[2], dedent(match[3]), page.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(page)
    ]
    return [block for block in found if block.language in ("python", "sh")]
