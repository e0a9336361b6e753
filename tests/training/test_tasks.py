"""Whole runs of every task on planted data that the baselines cannot see through."""

import json
import math
import random

import pytest
import torch

import regard
from regard.errors import DataError, OptionError
from regard.models import (
    DecoderSettings,
    EncoderSettings,
    LanguageTextSettings,
    StackSettings,
    TextSettings,
)
from regard.training import (
    LanguageConfig,
    PairsSettings,
    SequenceConfig,
    TagConfig,
    TaggedSettings,
    TagTrainingSettings,
    TextFilesSettings,
    TrainingSettings,
    WritingTrainingSettings,
    evaluate,
    fit,
    read_lines,
    read_pairs,
    read_sentences,
)
from regard.training.metrics import foreseen

LETTERS = "天地人大小上下"
SIZES = {"width": 24, "heads": 3, "layers": 1, "hidden": 31, "dropout": 0.0}
FAST = {"epochs": 12, "patience": 12, "batch_tokens": 256, "learning_rate": 0.01, "warmup": 5}
TASKS = ["tag", "language", "sequence"]


def tagged(path, count=200):
    """The tag of 的 depends on what stands behind it."""
    draw = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            words = draw.choices(LETTERS + "的的的", k=draw.randint(4, 9))
            for word, after in zip(words, [*words[1:], ""], strict=True):
                tag = ("DE" if after in "天地人" else "di") if word == "的" else "n"
                file.write(f"{word}\t{tag}\n")
            file.write("\n")
    return path


def repeated(path, count=200):
    """Two characters, over and over: which two, only the line itself says."""
    draw = random.Random(1)
    lines = ["".join(draw.sample(LETTERS, 2)) * draw.randint(4, 7) for _ in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ciphered(path, count=240):
    """Each character has its word."""
    draw = random.Random(2)
    words = dict(zip(LETTERS, ["sky", "earth", "man", "big", "small", "up", "down"], strict=True))
    with open(path, "w", encoding="utf-8") as file:
        file.write("source\ttarget\n")
        for _ in range(count):
            text = draw.choices(LETTERS, k=draw.randint(2, 4))
            file.write(f"{''.join(text)}\t{' '.join(words[c] for c in text)}\n")
    return path


def config(task, tmp_path, **training):
    if task == "tag":
        return TagConfig(
            data=TaggedSettings(train=tagged(tmp_path / "x.conll")),
            text=TextSettings(segmenter="characters", max_tokens=50),
            encoder=EncoderSettings(**SIZES, position="shaw"),
            training=TagTrainingSettings(
                **FAST | {"batch_tokens": 64, "token_dropout": 0.0} | training
            ),
        )
    if task == "language":
        return LanguageConfig(
            data=TextFilesSettings(train=repeated(tmp_path / "x.txt"), deduplicate=False),
            text=LanguageTextSettings(max_tokens=20),
            decoder=DecoderSettings(**SIZES | {"layers": 2}),
            training=WritingTrainingSettings(**FAST | training),
        )
    return SequenceConfig(
        data=PairsSettings(train=ciphered(tmp_path / "x.tsv")),
        text=LanguageTextSettings(max_tokens=20),
        target=LanguageTextSettings(segmenter="words", max_tokens=20),
        encoder=StackSettings(**SIZES | {"width": 32, "heads": 2}),
        training=WritingTrainingSettings(**FAST | {"batch_tokens": 40, "epochs": 16} | training),
    )


READ = {
    "tag": read_sentences,
    "language": read_lines,
    "sequence": lambda path: read_pairs(path, "source", "target"),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_planted_rule_is_learned_measured_and_saved(task, tmp_path):
    run = fit(config(task, tmp_path), tmp_path / "run")
    if task == "tag":
        assert run.baselines["frequent_tags"].accuracy < 0.95 < run.test.accuracy
    elif task == "language":
        assert run.test.perplexity < 0.6 * run.baselines["bigrams"].perplexity
        assert run.baselines["bigrams"].perplexity < run.baselines["unigrams"].perplexity
    else:
        assert run.test.exact > 0.5
        assert run.test.chrf > 0.65
        assert run.baselines["copy"].exact == 0
        assert run.baselines["most_frequent"].exact < 0.2
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test"] == json.loads(json.dumps(metrics["test"]))
    assert metrics.keys() >= run.baselines.keys()
    model = regard.load(tmp_path / "run")
    kept = READ[task](tmp_path / "run" / "test.jsonl")
    assert kept.columns() == run.splits.test.columns()
    assert evaluate(model, kept) == run.test
    best = min(run.history, key=lambda e: e.validation_loss) if task == "language" else max(
        run.history, key=lambda e: (e.validation_accuracy, -e.validation_loss)
    )  # fmt: skip
    assert run.best == best
    if task == "language":
        measured = evaluate(run.model, run.splits.validation)
        assert measured.loss == pytest.approx(best.validation_loss, abs=1e-5)
        assert measured.perplexity == pytest.approx(math.exp(measured.loss))
    assert not list((tmp_path / "run").glob("checkpoint*"))


@pytest.mark.parametrize("task", TASKS)
def test_a_stopped_run_goes_on_and_ends_the_same(task, tmp_path, monkeypatch):
    from regard.training.loop import Trainer

    settings = config(task, tmp_path, epochs=3, batch_tokens=97)
    unbroken = fit(settings).model.state_dict()
    evaluated = Trainer.evaluate

    def stop(self, examples):
        if len(self.history) == 1:
            raise KeyboardInterrupt
        return evaluated(self, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(settings, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "run" / "config.json").exists()
    other = settings.training.model_copy(update={"epochs": 4})
    with pytest.raises(OptionError, match="unfinished run with other settings or texts"):
        fit(settings.model_copy(update={"training": other}), tmp_path / "run")
    run = fit(settings, tmp_path / "run")
    assert [epoch.epoch for epoch in run.history] == [1, 2, 3]
    resumed = regard.load(tmp_path / "run").state_dict()
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
    with pytest.raises(OptionError, match="holds a finished run; name a new folder"):
        fit(settings, tmp_path / "run")
    fit(settings, tmp_path / "run", overwrite=True)


def test_a_language_model_is_judged_by_every_token_once(tmp_path):
    run = fit(config("language", tmp_path, epochs=1))
    lines = run.splits.test
    tokens = sum(len(line) + 1 for line in lines.lines)  # each character, and each end
    assert run.test.count == tokens
    assert run.baselines["bigrams"].count == tokens
    assert run.test.unknown == 0


def test_a_language_model_stops_when_its_loss_no_longer_falls(tmp_path):
    run = fit(config("language", tmp_path, epochs=12, patience=1, learning_rate=1e-12, warmup=0))
    assert len(run.history) < 12


def test_rare_tags_may_fall_among_what_is_held_out(tmp_path):
    settings = config("tag", tmp_path, epochs=1)
    test = tmp_path / "test.conll"
    test.write_text("天\tn\n地\tnever\n\n", encoding="utf-8")
    data = settings.data.model_copy(update={"test": test})
    run = fit(settings.model_copy(update={"data": data}))
    assert run.test.count == 2
    assert run.test.labels["never"].recall == 0


def test_validation_needs_a_tag_that_training_has(tmp_path):
    settings = config("tag", tmp_path, epochs=1)
    path = tmp_path / "v.conll"
    path.write_text("天\tnever\n\n", encoding="utf-8")
    data = settings.data.model_copy(update={"validation": path})
    with pytest.raises(DataError, match=r"v\.conll has none of the tags of training, only never"):
        fit(settings.model_copy(update={"data": data}))


def test_a_model_that_is_lost_has_no_end_of_perplexity():
    assert foreseen(1e9, right=0, unknown=0, count=10).perplexity == math.inf
    assert foreseen(10 * math.log(5), right=4, unknown=1, count=10).perplexity == pytest.approx(5)


def test_settings_of_a_base_class_will_do():
    found = TagConfig(training=TrainingSettings(epochs=3), encoder=EncoderSettings(width=24))
    assert found.training == TagTrainingSettings(epochs=3)
    assert LanguageConfig(text=TextSettings(min_count=1)).text.segmenter == "characters"
    given = TagTrainingSettings(epochs=3)
    assert TagConfig(training=given).training is given


def test_what_cannot_be_trained(tmp_path):
    settings = config("tag", tmp_path)
    with pytest.raises(OptionError, match="tags are read from the sentences; leave the setting"):
        fit(settings.model_copy(update={"tags": ("x",)}))
    text = TextSettings(segmenter="bpe")
    with pytest.raises(OptionError, match="'bpe' would cut new texts into pieces, but a tagger"):
        fit(settings.model_copy(update={"text": text}))
    with pytest.raises(OptionError, match=r"no texts to train on; name a \.jsonl file with lists"):
        fit(TagConfig())
    path = tmp_path / "one.conll"
    path.write_text("".join(f"{a}{b}\tn\n\n" for a in LETTERS for b in LETTERS), "utf-8")
    with pytest.raises(DataError, match=r"one\.conll has only the tag 'n'; a tagger needs two"):
        fit(settings.model_copy(update={"data": TaggedSettings(train=path)}))
    with pytest.raises(OptionError, match="cross-attention has no such step"):
        fit(config("sequence", tmp_path).model_copy(
            update={"encoder": StackSettings(**SIZES, score="location")}
        ))  # fmt: skip
