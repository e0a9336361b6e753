"""What holds for every kind of model with every position, score, normalizer and grouping."""

import copy

import pytest
import torch

import regard
from regard import attention, positions
from regard.errors import OptionError
from regard.models import DecoderCache, save

from .conftest import KINDS, TARGETS, TEXTS

# Rounding of float64 over a few hundred operations on numbers near 1; logits come as float32.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
FINE = {"rtol": 1e-10, "atol": 1e-12}

CHOICES = [
    *({"position": name} for name in positions.names()),
    *({"score": name} for name in attention.scores.names()),
    *({"normalizer": name, "kv_heads": 1} for name in attention.normalizers.names()),
]


def shown(choice):
    return "-".join(map(str, choice.values()))


def impossible(kind, choice):
    return kind == "sequence" and choice.get("score") == "location"


@pytest.mark.parametrize("choice", CHOICES, ids=shown)
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_padding_changes_nothing(make, answers, kind, choice):
    if impossible(kind, choice):
        with pytest.raises(OptionError, match="cross-attention has no such step; take another"):
            make(kind, **choice)
        return
    model = make(kind, **choice)
    together = answers(model, TEXTS)
    for i, row in enumerate(together):
        alone = answers(model, TEXTS[i : i + 1], TARGETS[i : i + 1])[0]
        torch.testing.assert_close(row, alone, **CLOSE)

    model.train()
    read = model.collate(model.encode(TEXTS))
    if kind == "sequence":
        read = (*read, model.collate(model.encode_targets(TARGETS))[0])
    output = model(*read)
    # a sum would be blind: the last norm centers every vector
    (output * torch.linspace(-1, 1, output.shape[-1]) ** 3).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("choice", CHOICES, ids=shown)
def test_tokens_one_at_a_time_are_the_whole_text_at_once(make, choice):
    model = make("language", **choice)
    ids = torch.randint(4, len(model.vocabulary), (2, 11))
    whole = model(ids)
    cache = model.decoder.new_cache()
    if choice.get("score") == "location":
        assert cache is None
        return
    parts = [model(part, cache=cache) for part in ids.split([3, 1, 1, 5, 1], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, **FINE)
    # what comes later changes nothing before it
    other = ids.clone()
    other[:, 7:] = 4
    torch.testing.assert_close(model(other)[:, :7], whole[:, :7], **FINE)


@pytest.mark.parametrize("choice", CHOICES, ids=shown)
def test_a_decoder_reads_with_caches_what_it_reads_at_once(make, choice):
    if impossible("sequence", choice):
        return
    model = make("sequence", **choice)
    ids, lengths = model.collate(model.encode(TEXTS[:2]))
    target = torch.randint(4, len(model.target_vocabulary), (2, 7))
    whole = model(ids, lengths, target)
    memory = model.encoder(ids, lengths)
    mask = attention.masks.Padding.from_lengths(lengths, ids.shape[1])
    cache = DecoderCache.empty(2)
    parts = [model.decoder(part, cache, memory, mask) for part in target.split([1, 1, 4, 1], 1)]
    torch.testing.assert_close(model.decoder.logits(torch.cat(parts, 1)), whole, **FINE)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_copied_it_is_the_same(make, answers, tmp_path, kind):
    model = make(kind).float()
    save(model, tmp_path / "run")
    again, copied = regard.load(tmp_path / "run"), copy.deepcopy(model)
    assert type(again) is type(model)
    assert again.settings == model.settings
    for one in (again, copied):
        assert not one.training
        for found, expected in zip(answers(one, TEXTS), answers(model, TEXTS), strict=True):
            assert torch.equal(found, expected)
    other = make(kind, seed=4).float()
    assert not torch.equal(answers(other, TEXTS)[0], answers(model, TEXTS)[0])
    other.load_state_dict(model.state_dict())
    assert torch.equal(answers(other, TEXTS)[0], answers(model, TEXTS)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_asking_leaves_the_mode_as_it_was(make, answers, kind):
    model = make(kind, dropout=0.5)
    first = answers(model, TEXTS)
    assert not model.training
    model.train()
    assert torch.equal(answers(model, TEXTS)[0], first[0])
    assert model.training


@pytest.mark.parametrize("kind", ["language", "sequence"])
def test_special_tokens_are_needed(make, kind):
    from regard.text import Vocabulary

    model = make(kind)
    message = "needs <pad> and <unk> and <s> and </s> among its specials; it lacks <s>, </s>"
    with pytest.raises(OptionError, match=message):
        type(model)(
            model.settings,
            Vocabulary.count([["a"]]),
            None,
            *([] if kind == "language" else [model.target_vocabulary]),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_more_tokens_than_a_table_of_places_holds_by_default(make, kind):
    if kind == "sequence":
        return
    model = make(kind, max_tokens=700, score="location", layers=1)
    text = "我" * 600
    assert len(model.logits([text])) == 1
