"""The build hook, on a small project with real npm sources: bundle in sdist and wheel."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    for name in ("pyproject.toml", "hatch_build.py", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "README.md").write_text("readme\n")
    (tmp_path / ".gitignore").write_text("/src/regard/explorer/static/\n")
    package = tmp_path / "src" / "regard"
    (package / "explorer").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    web = tmp_path / "web"
    web.mkdir()
    build = (
        "const fs = require('fs');"
        "fs.mkdirSync('../src/regard/explorer/static', {recursive: true});"
        "fs.writeFileSync('../src/regard/explorer/static/app.js', 'built')"
    )
    (web / "build.cjs").write_text(build)
    (web / "package.json").write_text(
        '{"name": "web", "version": "1.0.0", "scripts": {"build": "node build.cjs"}}'
    )
    (web / "package-lock.json").write_text(
        '{"name": "web", "version": "1.0.0", "lockfileVersion": 3, "packages": {}}'
    )
    return tmp_path


def build(folder, *options):
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *options, str(folder)],
        check=True,
        capture_output=True,
    )
    return folder / "dist"


@pytest.mark.skipif(shutil.which("npm") is None, reason="the machine has no npm")
def test_sdist_and_wheel_carry_the_bundle_and_an_sdist_needs_no_npm(project, tmp_path, monkeypatch):
    dist = build(project, "--sdist", "--wheel")
    bundle = "regard/explorer/static/app.js"
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        assert wheel.read(bundle) == b"built"
    unpacked = tmp_path / "unpacked"
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        sdist.extractall(unpacked, filter="data")
    source = next(unpacked.iterdir())
    assert (source / "src" / bundle).read_text() == "built"
    # npm would fail now: from an sdist it is not called
    (source / "web" / "package.json").write_text("broken")
    with zipfile.ZipFile(next(build(source, "--wheel").glob("*.whl"))) as wheel:
        assert wheel.read(bundle) == b"built"


def test_an_editable_install_builds_no_bundle(project, tmp_path):
    (project / "web" / "package.json").write_text("broken")
    code = (
        "import hatchling.build, sys; "
        f"print(hatchling.build.build_editable({str(tmp_path / 'wheels')!r}))"
    )
    (tmp_path / "wheels").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True, capture_output=True)
    assert list((tmp_path / "wheels").glob("*.whl"))
