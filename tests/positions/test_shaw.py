import math

import torch
from transformers.models.wav2vec2_bert import Wav2Vec2BertConfig, modeling_wav2vec2_bert

from regard import positions

HEADS, HEAD_WIDTH, CLIP = 3, 4, 2


def test_every_number_by_the_formula():
    shaw = positions.create("shaw", head_width=HEAD_WIDTH, max_distance=CLIP)
    shaw = shaw.double().requires_grad_(False)
    q = torch.randn(2, HEADS, 5, HEAD_WIDTH, dtype=torch.float64)
    k = torch.randn(2, HEADS, 7, HEAD_WIDTH, dtype=torch.float64)
    at, to = torch.tensor([[0, 1, 2, 3, 4], [9, 8, 3, 0, 1]]), torch.arange(7)
    rule = shaw.bias(at, to)
    values = rule(q, k, at, to)
    for b in range(2):
        for h in range(HEADS):
            for i in range(5):
                for j in range(7):
                    row = max(-CLIP, min(CLIP, int(to[j] - at[b, i]))) + CLIP
                    expected = float(q[b, h, i] @ shaw.vectors[row]) / math.sqrt(HEAD_WIDTH)
                    assert math.isclose(values[b, h, i, j].item(), expected, abs_tol=1e-14)


def test_the_bias_of_wav2vec2_bert_with_its_weights():
    config = Wav2Vec2BertConfig(
        hidden_size=HEADS * HEAD_WIDTH,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=CLIP,
        right_max_position_embeddings=CLIP,
    )
    theirs = modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention(config)
    shaw = positions.create("shaw", head_width=HEAD_WIDTH, max_distance=CLIP)
    with torch.no_grad():
        shaw.vectors.copy_(theirs.distance_embedding.weight)
    q, k = torch.randn(2, 2, HEADS, 7, HEAD_WIDTH)
    _, expected = modeling_wav2vec2_bert._apply_relative_key_position_encoding(theirs, q, k)
    places = torch.arange(7)
    # Sums of four products in float32, in another order.
    bound = 8 * 2**-24 * HEAD_WIDTH * q.abs().max().item()
    ours = shaw.bias(places, places)(q, k, places, places)
    torch.testing.assert_close(ours, expected, rtol=0, atol=bound)
