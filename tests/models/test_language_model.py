import math

import pytest
import torch

from regard.errors import DataError, OptionError
from regard.models import LanguageModel

TEXT = "我真的不喜欢吃洋葱"


def argmax_by_hand(model, ids, count):
    """The most probable continuation, the whole text read anew for every token."""
    ids = list(ids)
    for _ in range(count):
        logits = model(torch.tensor([ids]))[0, -1]
        logits[[0, 1, model.begin]] = -torch.inf
        ids.append(int(logits.argmax()))
        if ids[-1] == model.end:
            break
    return ids


@pytest.mark.parametrize("score", ["scaled_dot", "location"])
def test_greedy_is_the_argmax_without_a_cache(make, score):
    for seed in range(5):
        model = make("language", seed=seed, score=score)
        start = model.encode(["我喜欢"])[0][:-1].tolist()
        new = model.continuation(start, 12, temperature=0)
        with torch.inference_mode():
            assert start + new == argmax_by_hand(model, start, 12)


def test_log_probabilities_are_those_of_the_softmax(make):
    model = make("language")
    scored = model.log_probabilities([TEXT, "好"])
    assert scored[0].tokens == [*TEXT, "</s>"]
    ids = model.encode([TEXT])[0]
    logs = model.logits([TEXT])[0].double().log_softmax(-1)
    expected = logs[torch.arange(len(ids) - 1), ids[1:]]
    torch.testing.assert_close(
        torch.tensor(scored[0].log_probabilities).double(), expected, rtol=0, atol=1e-5
    )
    total = sum(sum(one.log_probabilities) for one in scored)
    assert model.perplexity([TEXT, "好"]) == pytest.approx(math.exp(-total / 12))
    assert scored[1].perplexity == pytest.approx(model.perplexity(["好"]))
    with pytest.raises(DataError, match="there is no text to judge"):
        model.perplexity([])


@pytest.mark.parametrize("limit", [2, 3, 4, 7])
def test_a_long_text_is_judged_in_windows(make, limit):
    model = make("language", max_tokens=limit, position="none")
    ids = model.encode([TEXT])[0]
    windows = list(model.windows(len(ids)))
    judged = [token for _, first, stop in windows for token in range(first + 1, stop)]
    assert judged == list(range(1, len(ids)))
    found = model.log_probabilities([TEXT])[0].log_probabilities
    for start, first, stop in windows:
        assert stop - 1 - start <= limit
        assert first - start >= (limit // 2 if first else 0)
        logs = model(ids[None, start : stop - 1])[0].log_softmax(-1)
        for token in range(first + 1, stop):
            assert found[token - 1] == pytest.approx(
                float(logs[token - 1 - start, ids[token]].detach()), abs=1e-5
            )
    with pytest.raises(OptionError, match=f"has 10 tokens with <s>, but the model reads {limit}"):
        model.logits([TEXT])


def test_the_same_seed_writes_the_same_text(make):
    model = make("language")
    first, second = (model.generate("我", 15, seed=7) for _ in range(2))
    assert first == second
    assert any(model.generate("我", 15, seed=seed) != first for seed in range(5))
    # a low temperature and a single candidate are the most probable token
    greedy = model.generate("我", 15, temperature=0)
    assert model.generate("我", 15, top=1, seed=1) == greedy
    assert model.generate("我", 15, temperature=1e-4, seed=1) == greedy


def test_only_the_most_probable_tokens_are_drawn(make):
    model = make("language")
    start = model.encode(["我"])[0][:-1]
    logits = model(start[None])[0, -1].detach()
    logits[[0, 1, model.begin]] = -torch.inf
    allowed = set(logits.topk(3).indices.tolist())
    drawn = {model.continuation(start.tolist(), 1, top=3, seed=s)[0] for s in range(60)}
    assert drawn == allowed


def test_tokens_are_drawn_as_often_as_they_are_probable(make):
    model = make("language")
    start = model.encode(["我"])[0][:-1]
    logits = model(start[None])[0, -1].detach()
    logits[[0, 1, model.begin]] = -torch.inf
    chances = (logits / 0.7).softmax(-1)
    count = 400
    drawn = [
        model.continuation(start.tolist(), 1, temperature=0.7, seed=s)[0] for s in range(count)
    ]
    often = torch.bincount(torch.tensor(drawn), minlength=len(chances)) / count
    # five standard deviations of a share
    assert ((often - chances).abs() <= 5 * (chances * (1 - chances) / count).sqrt() + 1e-9).all()


def never_ending(model):
    """The model, which would never end its text."""
    with torch.no_grad():
        model.decoder.norm.weight.zero_()
        model.decoder.norm.bias.copy_(model.decoder.embedding.weight[5])
        model.decoder.embedding.weight[model.end] = -model.decoder.embedding.weight[5]
    return model


def test_the_limit_is_said_or_the_window_slides(make):
    model = never_ending(make("language", max_tokens=6, position="learned"))
    with pytest.raises(
        OptionError, match=r"3 tokens are given and 9 more .* reads 6 at once; ask for 4"
    ):
        model.generate("我喜", 9)
    assert len(model.continuation([2, 5, 6], 4, temperature=0)) == 4
    assert len(model.continuation([2, 5, 6], 29, temperature=0, slide=True)) == 29
    assert len(model.continuation([2, *[5] * 20], 9, temperature=0, slide=True)) == 9


def test_sliding_forgets_the_oldest_half(make, monkeypatch):
    model = never_ending(make("language", max_tokens=6))
    seen = []
    forward = LanguageModel.forward

    def watched(self, ids, lengths=None, cache=None):
        seen.append(ids.shape[1])
        return forward(self, ids, lengths, cache)

    monkeypatch.setattr(LanguageModel, "forward", watched)
    model.continuation([2, 5, 6], 9, temperature=0, slide=True)
    # three read, then one by one to six; then three again
    assert seen == [3, 1, 1, 1, 3, 1, 1, 1, 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": 0}, "tokens= is at least 1, not 0"),
        ({"temperature": -1.0}, "temperature is 0 or more, not -1"),
        ({"temperature": math.nan}, "temperature is 0 or more, not nan"),
        ({"top": 0}, "top is at least 1, not 0"),
    ],
)
def test_what_cannot_be_asked(make, wrong, message):
    with pytest.raises(OptionError, match=message):
        make("language").generate("我", **wrong)
