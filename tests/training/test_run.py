import json
import signal
import subprocess
import sys
import time

import pytest
import torch

import regard
from regard.errors import DataError, OptionError
from regard.models import EncoderSettings, TextSettings
from regard.training import (
    ClassifyConfig,
    DataSettings,
    TrainingSettings,
    fit,
    read_labelled,
)


def config(table, **training):
    return ClassifyConfig(
        data=DataSettings(train=table),
        text=TextSettings(segmenter="characters", min_count=1),
        encoder=EncoderSettings(width=12, heads=3, layers=1, hidden=17, dropout=0.1),
        training=TrainingSettings(
            **{"epochs": 12, "batch_tokens": 256, "learning_rate": 0.02, "warmup": 5} | training
        ),
    )


def test_a_planted_rule_is_learned_measured_and_saved(tmp_path, planted):
    run = fit(config(planted(tmp_path / "x.tsv")), tmp_path / "run")
    assert run.test is not None
    assert run.majority is not None
    assert run.test.accuracy >= 0.9
    assert run.majority.accuracy == pytest.approx(0.5, abs=0.05)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] == run.test.accuracy
    assert metrics["texts"] == {"train": 192, "validation": 24, "test": 24}
    best = max(run.history, key=lambda e: (e.validation_accuracy, -e.validation_loss))
    assert regard.training.evaluate(run.model, run.splits.validation).accuracy == (
        best.validation_accuracy
    )
    assert regard.load(tmp_path / "run").predict(["天地好人"])[0].label == "good"
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["labels"] == ["bad", "good"]
    assert not list((tmp_path / "run").glob("checkpoint*"))


def test_the_same_seed_gives_the_same_model(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 80)
    first, second = (fit(config(table, epochs=2)).model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_stops_when_validation_no_longer_improves(tmp_path, planted):
    run = fit(config(planted(tmp_path / "x.tsv", 80), patience=1, learning_rate=1e-9))
    assert len(run.history) < 12


@pytest.mark.parametrize("segmenter", ["bpe", "wordpiece", "unigram"])
def test_subwords_are_learned_on_the_way(tmp_path, segmenter, planted):
    settings = config(planted(tmp_path / "x.tsv", 80), epochs=1)
    text = TextSettings(segmenter=segmenter, subwords=300)
    fit(settings.model_copy(update={"text": text}), tmp_path / "run")
    assert regard.load(tmp_path / "run").predict(["天地好人"])


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 400)
    settings = config(table, epochs=6, patience=6, batch_tokens=32)
    unbroken = fit(settings).model.state_dict()
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch; from regard.training import ClassifyConfig, fit; "
        "torch.set_num_threads(1); "
        "fit(ClassifyConfig.model_validate_json(sys.argv[1]), sys.argv[2])"
    )
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, str(script), settings.model_dump_json(), str(folder)]
    )
    while not (folder / "checkpoint.safetensors").exists():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "config.json").exists()
    with pytest.raises(
        OptionError, match="unfinished run with other settings or texts; name a new"
    ):
        fit(config(table, epochs=7), folder)
    run = fit(settings, folder)
    assert [epoch.epoch for epoch in run.history] == [1, 2, 3, 4, 5, 6]
    resumed = regard.load(folder).state_dict()
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
    with pytest.raises(OptionError, match="holds a finished run; name a new folder, or pass over"):
        fit(settings, folder)
    fit(config(table, epochs=1), folder, overwrite=True)


def test_a_run_to_be_replaced_stays_until_the_new_one_is_trained(tmp_path, planted):
    settings, folder = config(planted(tmp_path / "x.tsv", 80), epochs=1), tmp_path / "run"
    fit(settings, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for wrong in (
        {"text": TextSettings(segmenter="spaces")},
        {"encoder": EncoderSettings(width=7)},
        {"training": TrainingSettings(device="meta")},
        {"training": TrainingSettings(learning_rate=1e30, warmup=0)},
    ):
        with pytest.raises(OptionError):
            fit(settings.model_copy(update=wrong), folder, overwrite=True)
        assert before.items() <= {p.name: p.read_bytes() for p in folder.iterdir()}.items()


def test_overwriting_keeps_only_a_checkpoint_of_the_same_run(tmp_path, planted):
    table, folder = planted(tmp_path / "x.tsv", 80), tmp_path / "run"
    checkpoint = folder / "checkpoint.safetensors"
    fit(config(table, epochs=1), folder)
    for damage in (b"", b"cut short"):
        checkpoint.write_bytes(damage)
        run = fit(config(table, epochs=2), folder, overwrite=True)
        assert [epoch.epoch for epoch in run.history] == [1, 2]
        assert not checkpoint.exists()


def test_a_loss_that_is_no_number_is_said(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 80)
    with pytest.raises(OptionError, match=r"no finite number; try a learning_rate below 1e\+30"):
        fit(config(table, learning_rate=1e30, warmup=0))


def test_texts_of_one_character_have_a_baseline(tmp_path):
    rows = "".join(f"{chr(0x4E00 + i)}\t{'ab'[i % 2]}\n" for i in range(40))
    run = fit(config(write(tmp_path / "x.tsv", "text\tlabel\n" + rows), epochs=1))
    assert run.naive_bayes is not None
    assert run.naive_bayes.accuracy == 0.5


def test_given_files_never_share_a_text_with_training(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 100)
    lines = table.read_text().splitlines(keepends=True)
    (tmp_path / "test.tsv").write_text("".join(lines[:21]))
    data = DataSettings(train=table, test=tmp_path / "test.tsv")
    run = fit(config(table, epochs=1).model_copy(update={"data": data}))
    assert run.splits.test is not None
    assert len(run.splits.test) == 20
    seen = {*run.splits.train.texts, *run.splits.validation.texts}
    assert not seen.intersection(run.splits.test.texts)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_one_class_only(tmp_path, planted):
    table = write(tmp_path / "x.tsv", "text\tlabel\n" + "".join(f"好{i}\ta\n" for i in range(30)))
    with pytest.raises(DataError, match=r"x\.tsv has only the label 'a'; a classifier needs two"):
        fit(config(table))


def test_a_label_that_training_never_saw(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 60)
    test = write(tmp_path / "test.tsv", "text\tlabel\n新的\tugly\n")
    settings = config(table).model_copy(update={"data": DataSettings(train=table, test=test)})
    message = "test.tsv has the label 'ugly' .*, which training never saw; known: bad, good"
    with pytest.raises(DataError, match=message):
        fit(settings)


def test_a_device_that_is_not_there(tmp_path, planted):
    with pytest.raises(OptionError, match=r"device 'warp' cannot be used: .*; try cpu"):
        fit(config(planted(tmp_path / "x.tsv", 60), device="warp"))


def test_settings_say_what_is_wrong():
    with pytest.raises(OptionError, match=r"x\.toml: unknown setting 'training\.epoch'"):
        ClassifyConfig.read({"training": {"epoch": 3}}, "x.toml")
    with pytest.raises(OptionError, match=r"training\.epochs: .*greater than or equal to 1, got 0"):
        ClassifyConfig.read({"training": {"epochs": 0}}, "x.toml")


def test_the_curve_can_go_to_tensorboard(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 60)
    fit(config(table, epochs=1, tensorboard=True), tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_held_out_texts_are_kept_beside_the_model(tmp_path, planted):
    run = fit(config(planted(tmp_path / "x.tsv"), epochs=1), tmp_path / "run")
    kept = read_labelled(tmp_path / "run" / "test.jsonl", "text", "label")
    assert run.splits.test is not None
    assert (kept.texts, kept.labels) == (run.splits.test.texts, run.splits.test.labels)
    assert regard.training.evaluate(regard.load(tmp_path / "run"), kept) == run.test


def test_two_processes_do_not_train_into_one_folder(tmp_path, planted):
    from regard.training.run import _alone

    (tmp_path / "run").mkdir()
    message = "another process is training into .*; wait for it, or name another"
    with _alone(tmp_path / "run"), pytest.raises(OptionError, match=message):
        fit(config(planted(tmp_path / "x.tsv")), tmp_path / "run")


def test_validation_and_test_share_no_text(tmp_path, planted):
    table = planted(tmp_path / "x.tsv", 60)
    data = DataSettings(train=table, validation=table, test=table)
    with pytest.raises(DataError, match=r"x\.tsv and x\.tsv share \d+ texts, such as"):
        fit(config(table).model_copy(update={"data": data}))


def test_labels_are_no_setting_of_a_run(tmp_path, planted):
    settings = config(planted(tmp_path / "x.tsv", 60)).model_copy(update={"labels": ("x",)})
    with pytest.raises(OptionError, match="labels are read from the texts"):
        fit(settings)
