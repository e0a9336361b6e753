import json

import pytest
import torch

import regard
from regard.errors import DataError, OptionError, StorageError
from regard.models import Classifier, ClassifierSettings, EncoderSettings, TextSettings, load, save
from regard.text import Vocabulary

TEXTS = ["我喜欢吃洋葱", "我真的不喜欢吃洋葱", "好", "onions, please"]


@pytest.fixture
def model():
    torch.manual_seed(3)
    settings = ClassifierSettings(
        text=TextSettings(segmenter="characters", max_tokens=7),
        encoder=EncoderSettings(width=12, heads=3, layers=2, hidden=5),
        labels=("bad", "good", "so-so"),
    )
    return Classifier(settings, Vocabulary.count(map(list, TEXTS)))


def test_predictions_do_not_depend_on_the_company(model):
    together = model.predict(TEXTS)
    for text, prediction in zip(TEXTS, together, strict=True):
        alone = model.predict([text])[0]
        assert alone.label == prediction.label
        assert alone.probabilities == pytest.approx(prediction.probabilities, abs=1e-6)
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert prediction.probability == max(prediction.probabilities.values())
    assert model.training  # it was, and predict puts it back


def test_texts_past_the_limit_are_cut_there(model):
    assert model.predict(["我真的不喜欢吃洋葱"])[0] == model.predict(["我真的不喜欢吃"])[0]


def test_a_text_without_tokens_is_an_error_that_names_it(model):
    with pytest.raises(DataError, match=r"text 2 of 2 has no tokens: ''"):
        model.predict(["好", ""])
    with pytest.raises(OptionError, match=r"predict takes a list of texts; .* pass \[text\]"):
        model.predict("好")
    assert model.predict([]) == []


def test_a_saved_model_answers_the_same(model, tmp_path):
    save(model, tmp_path / "run")
    again = regard.load(tmp_path / "run")
    assert not again.training
    assert again.predict(TEXTS) == model.predict(TEXTS)
    assert again.settings == model.settings
    files = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert files == ["config.json", "model.safetensors", "vocabulary.json"]


def test_a_trained_segmenter_is_saved_with_the_model(model, tmp_path):
    from regard.text import segmenters

    bpe = segmenters.create("bpe").train(TEXTS, size=300)
    settings = model.settings.model_copy(update={"text": TextSettings(segmenter="bpe")})
    model = Classifier(settings, Vocabulary.count(bpe.split(TEXTS)), bpe)
    save(model, tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert load(tmp_path / "moved").predict(TEXTS) == model.predict(TEXTS)


def cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def other_shape(folder):
    config = json.loads((folder / "config.json").read_text())
    config["encoder"]["hidden"] = 6
    (folder / "config.json").write_text(json.dumps(config))


def unknown_setting(folder):
    config = json.loads((folder / "config.json").read_text())
    config["encoder"]["depth"] = 3
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (cut_short, DataError, r"model\.safetensors is cut short or damaged .*; copy it again or"),
        (other_shape, DataError, r"does not fit config\.json: .*; the files are of different runs"),
        (unknown_setting, DataError, r"config\.json: unknown setting 'encoder\.depth'"),
        (lambda f: (f / "config.json").write_text("{"), DataError, r"config\.json is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), DataError, "holds no JSON object"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), DataError, "is not JSON"),
        (lambda f: (f / "config.json").unlink(), StorageError, "holds no finished model"),
        (lambda f: (f / "vocabulary.json").write_text("{}"), DataError, "is not a vocabulary"),
        (lambda f: (f / "vocabulary.json").unlink(), StorageError, r"cannot read .*vocabulary"),
        (lambda f: (f / "model.safetensors").unlink(), StorageError, r"safetensors is missing"),
    ],
)
def test_a_damaged_folder_is_one_line(model, tmp_path, damage, kind, message):
    save(model, tmp_path)
    damage(tmp_path)
    with pytest.raises(kind, match=message):
        load(tmp_path)


def test_no_folder_at_all(tmp_path):
    with pytest.raises(StorageError, match="is not a folder; name the folder that regard train"):
        load(tmp_path / "nowhere")


def test_what_a_classifier_needs():
    settings = ClassifierSettings(labels=("only",))
    with pytest.raises(OptionError, match="needs two labels or more"):
        Classifier(settings, Vocabulary.count([["a"]]))
    settings = ClassifierSettings(labels=("a", "b"))
    with pytest.raises(OptionError, match="needs <pad> and <unk>"):
        Classifier(settings, Vocabulary.count([["a"]], specials=()))
