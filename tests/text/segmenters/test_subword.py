import json

import pytest

from regard.errors import DataError, OptionError, StorageError
from regard.text import Vocabulary, segmenters

LESSON = ["the low lower lowest slow", "我喜欢吃洋葱，我真的不喜欢吃洋葱。"] * 5


@pytest.fixture(params=["bpe", "unigram", "wordpiece"], scope="module")
def trained(request):
    return segmenters.create(request.param).train(iter(LESSON), size=300)


def test_byte_pieces_have_the_offsets_of_their_character():
    segmenter = segmenters.create("bpe").train(["low"] * 3, size=260)
    found = segmenter("a洋👍")
    assert found.tokens == [
        *("a", "<0xE6>", "<0xB4>", "<0x8B>"),
        *("<0xF0>", "<0x9F>", "<0x91>", "<0x8D>"),
    ]
    assert found.starts == [0, 1, 1, 1, 2, 2, 2, 2]
    assert found.ends == [1, 2, 2, 2, 3, 3, 3, 3]


def test_no_text_is_unknown_to_bytes():
    segmenter = segmenters.create("bpe").train(LESSON, size=300)
    vocabulary = Vocabulary(segmenter.pieces, specials=("<unk>",))
    for text in ("囧 Ж ﷺ", "".join(map(chr, range(1, 256)))):
        assert vocabulary.unknown not in vocabulary.encode(segmenter(text).tokens)


def test_one_file_holds_everything(trained, tmp_path):
    trained.save(tmp_path / "pieces.json")
    again = type(trained).load(tmp_path / "pieces.json")
    assert again("slower 我吃").tokens == trained("slower 我吃").tokens
    assert again.pieces == trained.pieces
    assert [p.name for p in tmp_path.iterdir()] == ["pieces.json"]


def test_the_size_is_kept(trained):
    # Pieces that the text does not offer are not made up; unigram keeps every character.
    assert 20 < len(trained.pieces) <= 300


def test_untrained_says_what_to_do():
    with pytest.raises(OptionError, match=r"^this bpe segmenter has no pieces yet; train\(texts"):
        segmenters.create("bpe")("text")


@pytest.mark.parametrize("name", ["bpe", "unigram", "wordpiece"])
def test_nothing_to_learn_from(name):
    with pytest.raises(DataError, match=f"^{name} has nothing to learn from: the texts are empty"):
        segmenters.create(name).train(["", " "], size=300)


def test_one_string_is_no_collection_of_texts():
    with pytest.raises(OptionError, match=r"^train takes many texts"):
        segmenters.create("bpe").train("the low", size=300)


def test_a_size_too_small():
    with pytest.raises(OptionError, match=r"^bpe needs a size of at least 256; it is 100$"):
        segmenters.create("bpe").train(LESSON, size=100)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"name": "unigram"}', "\udcff"])
def test_a_file_that_is_no_segmenter(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"x\.json (is no segmenter of regard|holds a unigram)"):
        segmenters.family.get("bpe").load(path)


def test_a_damaged_model_and_a_missing_file(trained, tmp_path):
    trained.save(tmp_path / "x.json")
    content = json.loads((tmp_path / "x.json").read_text())
    content["tokenizer"] = {"model": 1}
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"is no segmenter of regard"):
        type(trained).load(tmp_path / "x.json")
    with pytest.raises(StorageError, match=r"^cannot read .*none\.json: no such file"):
        type(trained).load(tmp_path / "none.json")
