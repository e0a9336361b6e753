import itertools

import pytest
import torch

from regard.errors import DataError, OptionError
from regard.models import EncoderDecoder

from .conftest import TARGETS, TEXTS


def greedy_by_hand(model, text, count):
    """The most probable text, read anew for every token."""
    ids, lengths = model.collate(model.encode([text]))
    written = [model.begin]
    for _ in range(count):
        logits = model(ids, lengths, torch.tensor([written]))[0, -1]
        logits[[0, 1, model.begin]] = -torch.inf
        written.append(int(logits.argmax()))
        if written[-1] == model.end:
            break
    return written[1:]


def test_one_beam_is_the_argmax_without_caches(make):
    for seed in range(5):
        model = make("sequence", seed=seed)
        for text, found in zip(TEXTS, model.predict(TEXTS, tokens=9), strict=True):
            with torch.inference_mode():
                expected = greedy_by_hand(model, text, 9)
            tokens = [model.target_vocabulary.tokens[i] for i in expected if i != model.end]
            assert found.tokens == tokens
            assert found.ended == (expected[-1] == model.end)


def log_probability(model, text, tokens, ended):
    """What the model gives a text, token by token."""
    ids, lengths = model.collate(model.encode([text]))
    known = model.target_vocabulary.encode(tokens).tolist()
    read = torch.tensor([[model.begin, *known]])
    logs = model(ids, lengths, read)[0].log_softmax(-1).detach()
    wanted = [*known, *([model.end] if ended else [])]
    return float(logs[torch.arange(len(wanted)), torch.tensor(wanted)].sum())


def test_log_probabilities_are_the_models_own(make):
    model = make("sequence")
    for beams in (1, 3):
        for text, found in zip(TEXTS, model.predict(TEXTS, beams=beams, tokens=5), strict=True):
            expected = log_probability(model, text, found.tokens, found.ended)
            assert found.log_probability == pytest.approx(expected, abs=1e-4)


def test_enough_beams_find_the_best_of_all_texts(make):
    for seed in range(3):
        model = make("sequence", seed=seed)
        words = model.target_vocabulary.tokens[4:7]
        barred = [i for i, t in enumerate(model.target_vocabulary.tokens) if i > 6]
        with torch.no_grad():  # all other words are out of the question
            model.decoder.norm.bias += 9
            model.decoder.embedding.weight[barred] = -9.0
        texts = [list(t) for n in range(4) for t in itertools.product(words, repeat=n)]
        every = {tuple(t): log_probability(model, "好", t, True) / (len(t) + 1) for t in texts}
        found = model.predict(["好"], beams=len(model.target_vocabulary) - 1, tokens=4)[0]
        mean = found.log_probability / (len(found.tokens) + 1)
        assert found.ended
        assert mean == pytest.approx(every[tuple(found.tokens)], abs=1e-4)
        greedy = model.predict(["好"], tokens=4)[0]
        if greedy.ended:
            assert mean >= greedy.log_probability / (len(greedy.tokens) + 1) - 1e-6


def test_the_company_changes_nothing(make):
    model = make("sequence")
    together = model.predict(TEXTS, beams=3, tokens=7)
    for text, found in zip(TEXTS, together, strict=True):
        alone = model.predict([text], beams=3, tokens=7)[0]
        assert alone.tokens == found.tokens
        assert alone.log_probability == pytest.approx(found.log_probability, abs=1e-5)


def test_targets_are_cut_to_the_limit_and_marked(make):
    model = make("sequence", max_tokens=3)
    ids = model.encode_targets(["i like onions", "no onions"])
    assert [row[0] for row in ids] == [model.begin] * 2
    assert [len(row) for row in ids] == [4, 4]
    assert ids[1][-1] == model.end
    assert ids[0][-1] != model.end
    assert [len(row) for row in model.logits(TEXTS[:2], TARGETS[:2])] == [3, 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beams": 0}, "beams= is at least 1 and less than the 10 tokens"),
        ({"beams": 99}, "beams= is at least 1 and less than the 10 tokens"),
        ({"tokens": 0}, "tokens= is from 1 to 23"),
        ({"tokens": 24}, "tokens= is from 1 to 23"),
    ],
)
def test_what_cannot_be_asked(make, wrong, message):
    with pytest.raises(OptionError, match=message):
        make("sequence").predict(["好"], **wrong)


def test_what_is_no_text(make):
    model = make("sequence")
    with pytest.raises(DataError, match="text 1 of 1 has no tokens"):
        model.predict([""])
    with pytest.raises(OptionError, match=r"predict takes a list of texts; for one text pass"):
        model.predict("好")
    with pytest.raises(OptionError, match="there are 2 texts but 1 targets"):
        model.logits(TEXTS[:2], TARGETS[:1])
    with pytest.raises(OptionError, match="needs a target_vocabulary, for what it writes"):
        EncoderDecoder(model.settings, model.vocabulary)
