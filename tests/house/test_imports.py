"""What an import costs: seen in a fresh interpreter."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "matplotlib", "fastapi", "anywidget", "numba", "tokenizers")


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_regard_alone_imports_nothing_heavy():
    assert not imported_by("import regard").intersection(HEAVY)


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ("import regard.text", ("torch", "transformers", "matplotlib")),
        ("import regard.vectors", ("torch", "transformers", "matplotlib")),
        ("from regard import attend, MultiHeadAttention", ("transformers", "matplotlib")),
        ("from regard import load, fit", ("transformers", "matplotlib", "tensorboard", "snownlp")),
        ("import regard.cli", ("torch", "matplotlib")),
    ],
)
def test_a_folder_imports_only_its_own_needs(statement, without):
    assert not imported_by(statement).intersection(without)


def test_every_public_name_exists():
    import regard

    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
        _ = regard.atend
