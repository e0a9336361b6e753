import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import attention, positions
from regard.attention import MultiHeadAttention
from regard.attention.masks import Padding
from regard.models import Block, Encoder, EncoderSettings
from regard.models._stack import position_of

# Rounding of float64 over a few hundred operations on numbers near 1.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def test_a_block_is_its_two_halves_written_out():
    torch.manual_seed(0)
    block = Block(MultiHeadAttention(6, 2), hidden=11).double().eval()
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    heads = block.attention
    normed = block.attention_norm(x)
    mixed = []
    for head in (slice(0, 3), slice(3, 6)):
        q, k, v = (m(normed)[..., head] for m in (heads.query, heads.key, heads.value))
        weights = (q @ k.mT / 3**0.5).softmax(-1)
        mixed.append(weights @ v)
    middle = x + heads.output(torch.cat(mixed, -1))
    first, second = block.fully_connected[0], block.fully_connected[3]
    hidden = torch.nn.functional.gelu(first(block.fully_connected_norm(middle)))
    torch.testing.assert_close(block(x), middle + second(hidden), **CLOSE)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    position=st.sampled_from(["none", "unit_interval", "index", "sinusoidal", "rotary", "alibi"]),
)
def test_padding_changes_nothing(lengths, position):
    torch.manual_seed(1)
    settings = EncoderSettings(width=12, heads=3, layers=2, hidden=7, position=position)
    encoder = Encoder(13, settings, max_tokens=50).double().eval()
    texts = [torch.randint(1, 13, (n,)) for n in lengths]
    rows = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    together = encoder(rows, torch.tensor(lengths))
    for text, row in zip(texts, together, strict=True):
        alone = encoder(text[None], torch.tensor([len(text)]))[0]
        torch.testing.assert_close(row[: len(text)], alone, **CLOSE)


def test_without_positions_the_order_of_tokens_only_orders_the_outputs():
    settings = EncoderSettings(width=10, heads=2, layers=2, position="none")
    encoder = Encoder(17, settings, max_tokens=50).double().eval()
    ids, order = torch.randint(1, 17, (1, 7)), torch.randperm(7)
    length = torch.tensor([7])
    torch.testing.assert_close(
        encoder(ids[:, order], length), encoder(ids, length)[:, order], **CLOSE
    )


def test_every_position_encoding_and_score_trains_in_a_block():
    for position in positions.names():
        settings = EncoderSettings(width=12, heads=3, layers=1, hidden=5, position=position)
        assert type(position_of(settings, 20)) is positions.get(position)
        check_gradients(settings)
    for score in set(attention.scores.names()) - {"location"}:
        check_gradients(EncoderSettings(width=12, heads=3, layers=1, hidden=5, score=score))
    for normalizer in attention.normalizers.names():
        check_gradients(
            EncoderSettings(
                width=12, heads=3, kv_heads=1, layers=1, hidden=5, normalizer=normalizer
            )
        )


def check_gradients(settings):
    torch.manual_seed(2)
    encoder = Encoder(19, settings, max_tokens=20)
    ids, lengths = torch.randint(1, 19, (2, 7)), torch.tensor([7, 4])
    output = encoder(ids, lengths)
    # a sum would be blind: the final norm centers every vector
    (output * torch.linspace(-1, 1, output.shape[-1]) ** 3).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, (settings, name)
        assert parameter.grad.isfinite().all(), (settings, name)


def test_hooks_on_the_taps_see_and_edit():
    block = Block(MultiHeadAttention(6, 2), hidden=5).eval()
    x, mask = torch.randn(1, 4, 6), Padding(torch.ones(1, 4, dtype=torch.bool))
    plain = block(x, mask)
    seen = []
    watch = block.attention.weights.register_forward_hook(lambda m, a, w: seen.append(w))
    torch.testing.assert_close(block(x, mask), plain)
    watch.remove()
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(1, 2, 4))
    edit = block.output.register_forward_hook(lambda m, a, x: torch.zeros_like(x))
    assert not block(x, mask).any()
    edit.remove()
