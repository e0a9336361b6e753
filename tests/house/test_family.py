import pytest

from regard.errors import MissingExtraError, OptionError, RegardError, unknown_name
from regard.text import segmenters


def test_an_unknown_name_offers_the_nearest_and_lists_all():
    with pytest.raises(OptionError, match="unknown segmenter 'charakters'; did you mean 'charac"):
        segmenters.create("charakters")
    assert str(unknown_name("score", "xyz", ["b", "a"])) == "unknown score 'xyz'; known: a, b"


def test_an_unknown_setting_is_named_with_those_there_are():
    with pytest.raises(OptionError, match="'characters' takes no setting 'size'; it takes: norm"):
        segmenters.create("characters", size=3)


def test_a_missing_setting_is_named():
    from regard import positions

    with pytest.raises(OptionError, match="'sinusoidal' needs: width"):
        positions.create("sinusoidal")


def test_a_missing_extra_says_what_to_install():
    error = MissingExtraError("transformers", "hf")
    assert isinstance(error, RegardError)
    assert str(error) == 'transformers is not installed; run: pip install "regard[hf]"'
