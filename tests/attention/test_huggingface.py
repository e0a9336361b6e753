"""Attention layers of Llama, GPT-2, BERT and T5, with random weights, loaded into ours: equal."""

import pytest
import torch

from regard import positions
from regard.attention import MultiHeadAttention, masks

transformers = pytest.importorskip("transformers")

B, T, D, H = 2, 7, 24, 6


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def put(linear, weight, bias=None):
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)


def inputs():
    torch.manual_seed(1)
    real = torch.ones(B, T, dtype=torch.bool)
    real[0, 5:] = False
    return torch.randn(B, T, D), real


def additive(allowed):
    """Hugging Face's mask: 0 or the smallest number, to be added."""
    return torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)


def test_llama():
    from transformers.models.llama import modeling_llama as llama

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=2, attn_implementation="eager"
    )
    theirs = llama.LlamaAttention(config, 0).eval()
    ours = MultiHeadAttention(
        D, H, kv_heads=2, bias=False, position=positions.create("rotary", head_width=D // H)
    )
    put(ours.query, theirs.q_proj.weight)
    put(ours.key, theirs.k_proj.weight)
    put(ours.value, theirs.v_proj.weight)
    put(ours.output, theirs.o_proj.weight)
    x, real = inputs()
    phases = llama.LlamaRotaryEmbedding(config)(x, torch.arange(T)[None])
    allowed = torch.ones(T, T).tril().bool() & real[:, None, None]
    expected = theirs(x, position_embeddings=phases, attention_mask=additive(allowed))[0]
    found = ours(x, mask=masks.Causal() & masks.Padding(real))
    close(found[real], expected[real])


def test_gpt2():
    from transformers.models.gpt2 import modeling_gpt2 as gpt2

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=D, n_head=H, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="eager"
    )
    theirs = gpt2.GPT2Attention(config, layer_idx=0).eval()
    ours = MultiHeadAttention(D, H)
    weights = theirs.c_attn.weight.T.chunk(3)
    offsets = torch.randn(3 * D)
    with torch.no_grad():
        theirs.c_attn.bias.copy_(offsets)
    for linear, weight, offset in zip(
        (ours.query, ours.key, ours.value), weights, offsets.chunk(3), strict=True
    ):
        put(linear, weight, offset)
    put(ours.output, theirs.c_proj.weight.T, theirs.c_proj.bias)
    x, _ = inputs()
    causal = torch.ones(1, 1, T, T).tril().bool()
    close(ours(x, mask=masks.Causal()), theirs(x, attention_mask=additive(causal))[0])


def test_bert():
    from transformers.models.bert import modeling_bert as bert

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=D, num_attention_heads=H, attn_implementation="eager"
    )
    theirs = bert.BertSelfAttention(config).eval()
    ours = MultiHeadAttention(D, H)
    for name in ("query", "key", "value"):
        linear = getattr(theirs, name)
        put(getattr(ours, name), linear.weight, linear.bias)
    put(ours.output, torch.eye(D), torch.zeros(D))
    x, real = inputs()
    expected = theirs(x, attention_mask=additive(real[:, None, None]))[0]
    close(ours(x, mask=masks.Padding(real)), expected)


def test_t5():
    from transformers.models.t5 import modeling_t5 as t5

    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=D,
        d_kv=5,
        num_heads=H,
        dropout_rate=0.0,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    position = positions.create("t5", heads=H, buckets=8, max_distance=6, bidirectional=True)
    # T5 does not scale its scores.
    ours = MultiHeadAttention(D, H, head_width=5, bias=False, score="dot", position=position)
    put(ours.query, theirs.q.weight)
    put(ours.key, theirs.k.weight)
    put(ours.value, theirs.v.weight)
    put(ours.output, theirs.o.weight)
    (table,) = position.parameters()
    with torch.no_grad():
        bias = theirs.relative_attention_bias.weight
        table.copy_(bias if table.shape == bias.shape else bias.T)
    x, _ = inputs()
    close(ours(x), theirs(x)[0])
