"""A trace end to end: text in, exact weights with their tokens out, and refusals in words."""

import json

import pytest
import torch

from regard.attention.masks import Causal, Window
from regard.errors import DataError, OptionError, StorageError
from regard.inspection import Trace, trace, trace_windows
from regard.inspection.tokens import Token, from_ids

TEXT = "the quick brown fox jumps"


def eager_weights(small_model, family, ids, **settings):
    with torch.no_grad():
        out = small_model(family, "eager", **settings)(torch.tensor([ids]), output_attentions=True)
    return [w[0] for w in out.attentions]


def all_weights(found, layer):
    return torch.stack([found.weights(layer, head) for head in range(found.heads)])


def test_a_model_that_runs_sdpa_gives_its_attentions(small_model, bytes_tokenizer):
    model = small_model("gpt2", vocab_size=320)
    found = trace(model, TEXT, tokenizer=bytes_tokenizer)
    assert model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        assert all(a is None for a in model(torch.tensor([[5]]), output_attentions=True).attentions)
    truth = eager_weights(small_model, "gpt2", bytes_tokenizer(TEXT)["input_ids"], vocab_size=320)
    for layer, weights in enumerate(truth):
        torch.testing.assert_close(all_weights(found, layer), weights, atol=1e-5, rtol=0)
    assert found.verify().passed
    assert str(found.verify()).startswith("verified: 96 rows in float64")


def test_chinese_and_emoji_are_characters_again(small_model, bytes_tokenizer):
    text = "hi 你好 😀"
    found = trace(small_model("gpt2", vocab_size=320), text, tokenizer=bytes_tokenizer)
    labels = [token.label for token in found.tokens]
    assert labels[3:9] == ["你[1/3]", "你[2/3]", "你[3/3]", "好[1/3]", "好[2/3]", "好[3/3]"]
    assert labels[10:] == [f"😀[{i}/4]" for i in (1, 2, 3, 4)]
    assert all(text[t.start : t.end] == t.text for t in found.tokens if t.end > t.start)
    units = found.units("characters")
    assert [unit.text for unit in units.rows if unit.text != "␣"] == ["h", "i", "你", "好", "😀"]
    weights = units.weights(1, 2)
    expected = found.weights(1, 2)[3:6].mean(0)[6:9].sum()
    torch.testing.assert_close(weights[3, 4], expected, atol=1e-6, rtol=0)
    # Ids alone come back to the same text and pieces.
    again, tokens = from_ids(bytes_tokenizer, bytes_tokenizer(text)["input_ids"])
    assert again == text
    assert [t.label for t in tokens if t.pieces > 1] == [x for x in labels if "[" in x]


def test_labels_show_what_cannot_be_seen():
    shown = {
        "👨‍👩‍👧": "👨‍👩‍👧",
        "a\u200db": "a\\u200db",
        "\u200d": "\\u200d",
        " \n": "⏎",
        "  ": "␣␣",
    }
    assert {text: Token(text).label for text in shown} == shown


def test_words_are_merged_and_rows_sum_to_one(small_model, words_tokenizer):
    model = small_model("bert", vocab_size=120)
    found = trace(model, "the fox jumps 我喜欢洋葱", tokenizer=words_tokenizer)
    units = found.units("words")
    shown = [unit.text for unit in units.rows]
    assert shown == ["[CLS]", "the", "fox", "jumps", "我", "喜欢", "洋葱", "[SEP]"]
    weights = units.weights(0, 1)
    torch.testing.assert_close(weights.sum(1), torch.ones(8), atol=1e-6, rtol=0)
    tokens = found.weights(0, 1)
    jumps = slice(3, 5)
    torch.testing.assert_close(weights[3, 3], tokens[jumps, jumps].sum(1).mean())
    hidden = found.units("words", special=False)
    assert [unit.text for unit in hidden.rows] == shown[1:-1]
    torch.testing.assert_close(hidden.weights(0, 1), weights[1:-1, 1:-1])
    scaled = found.units("words", special=False, renormalize=True)
    torch.testing.assert_close(scaled.weights(0, 1).sum(1), torch.ones(6), atol=1e-6, rtol=0)
    assert "special tokens hidden, rows scaled" in scaled.description
    assert "rows lack their share" in hidden.description
    assert units.description == "words, summed over keys, averaged over queries"
    with pytest.raises(OptionError, match="unknown unit 'word'; did you mean 'words'"):
        found.units("word")
    with pytest.raises(OptionError, match="pass special=False"):
        found.units("words", renormalize=True)


def test_sentences(small_model, words_tokenizer):
    text = "the fox jumps. the lazy dog! 我喜欢吃洋葱。北京的天气很好"
    found = trace(small_model("bert", vocab_size=120), text, tokenizer=words_tokenizer)
    units = found.units("sentences", special=False)
    assert [unit.text for unit in units.rows] == [
        "the fox jumps.",
        "the lazy dog!",
        "我喜欢吃洋葱。",
        "北京的天气很好",
    ]
    weights = units.weights(0, 0)
    tokens = found.weights(0, 0)
    first = list(units.rows[0].tokens)
    torch.testing.assert_close(weights[0, 0], tokens[first][:, first].sum(1).mean())


def test_a_pair_of_texts_and_a_typed_separator(small_model, words_tokenizer):
    found = trace(
        small_model("bert", vocab_size=120),
        "the fox [SEP] 洋葱",
        pair="the lazy dog",
        tokenizer=words_tokenizer,
    )
    assert [t.segment for t in found.tokens] == [None, 0, 0, 0, 0, 0, None, 1, 1, 1, None]
    typed = found.tokens[3]
    assert (typed.text, typed.special, typed.start, typed.end) == ("[SEP]", False, 8, 13)
    assert [t.special for t in found.tokens].count(True) == 3
    assert found.texts == ("the fox [SEP] 洋葱", "the lazy dog")


def test_batches_are_trimmed_and_say_so(small_model, words_tokenizer):
    model = small_model("bert", vocab_size=120)
    texts = ["the fox", "the fox jumps the lazy dog", "洋葱"]
    for item, text in enumerate(texts):
        found = trace(model, texts, item=item, tokenizer=words_tokenizer)
        alone = trace(model, text, tokenizer=words_tokenizer)
        assert [t.text for t in found.tokens] == [t.text for t in alone.tokens]
        assert bool(found.notes) == (item != 1)
        torch.testing.assert_close(all_weights(found, 1), all_weights(alone, 1), atol=1e-5, rtol=0)
    assert trace(model, texts, item=0, tokenizer=words_tokenizer).notes == (
        "5 padding tokens are left out",
    )
    with pytest.raises(OptionError, match="there are 3 texts: say which one"):
        trace(model, texts, tokenizer=words_tokenizer)
    with pytest.raises(OptionError, match="item 3 is asked for; the batch has items 0 … 2"):
        trace(model, texts, item=3, tokenizer=words_tokenizer)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2", "gemma3", "bloom"])
def test_generation_joins_to_one_causal_matrix(small_model, bytes_tokenizer, family):
    attn = "eager" if family in ("gemma2", "bloom") else "sdpa"
    model = small_model(family, attn, vocab_size=320)
    found = trace(model, "the fox", tokenizer=bytes_tokenizer, generate=9)
    ids = [token.id for token in found.tokens]
    assert len(ids) > 6
    truth = eager_weights(small_model, family, ids, vocab_size=320)
    for layer, weights in enumerate(truth):
        ours = all_weights(found, layer)
        assert ours.shape == weights.shape == (6, len(ids), len(ids))
        torch.testing.assert_close(ours, weights, atol=1e-5, rtol=0)
        assert ours.triu(1).eq(0).all()
        assert isinstance(found.record(layer).mask, Causal | Window)
    assert any("written, not read" in note for note in found.notes)


def test_generation_of_one_text_of_a_batch(small_model, bytes_tokenizer):
    model = small_model("gpt2", vocab_size=320)
    texts = ["the fox", "the quick brown fox"]
    for item, text in enumerate(texts):
        found = trace(model, texts, item=item, tokenizer=bytes_tokenizer, generate=4)
        alone = trace(model, text, tokenizer=bytes_tokenizer, generate=4)
        assert [t.id for t in found.tokens] == [t.id for t in alone.tokens]
        torch.testing.assert_close(all_weights(found, 1), all_weights(alone, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_encoder_decoder_has_three_parts(small_model, bytes_tokenizer, family):
    model = small_model(family, vocab_size=320)
    found = trace(model, TEXT, target="the dog", tokenizer=bytes_tokenizer, part="cross")
    assert list(found.parts) == ["encoder", "decoder", "cross"]
    encoder, decoder = found.parts["encoder"], found.parts["decoder"]
    assert found.key_tokens == encoder.tokens
    assert found.tokens == decoder.tokens
    assert found.weights(0, 0).shape == (len(decoder.tokens), len(encoder.tokens))
    assert encoder.texts == (TEXT,)
    with pytest.raises(OptionError, match="part 'self' is asked for; the model has encoder, dec"):
        trace(model, TEXT, tokenizer=bytes_tokenizer, part="self")
    written = trace(model, TEXT, tokenizer=bytes_tokenizer, generate=5, part="decoder")
    ids = torch.tensor([[t.id for t in written.tokens]])
    given = torch.tensor([bytes_tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        eager = small_model(family, "eager", vocab_size=320)
        out = eager(given, decoder_input_ids=ids, output_attentions=True)
    for layer in range(2):
        for part, truth in (("decoder", out.decoder_attentions), ("cross", out.cross_attentions)):
            ours = all_weights(written.parts[part], layer)
            torch.testing.assert_close(ours, truth[layer][0], atol=1e-5, rtol=0)


def test_arithmetic_adds_up(small_model, bytes_tokenizer):
    for family, attn in (
        ("gemma2", "eager"),
        ("bloom", "eager"),
        ("llama", "sdpa"),
        ("t5", "sdpa"),
    ):
        found = trace(small_model(family, attn, vocab_size=320), TEXT, tokenizer=bytes_tokenizer)
        record = found.record(0)
        total = torch.zeros(record.v.shape[-1], dtype=torch.float64)
        for col in range(record.k_tokens):
            one = found.arithmetic(0, 4, 5, col)
            assert one.dot == pytest.approx(float((one.q * one.k).sum()))
            assert one.score == pytest.approx(one.dot * one.scale)
            if one.softcap is None:
                assert one.capped == pytest.approx(one.score + one.bias)
            else:
                assert abs(one.capped) < one.softcap
            if one.allowed:
                expected = torch.tensor(one.capped - one.log_sum_exp).exp()
                assert one.weight == pytest.approx(float(expected), abs=1e-6)
            else:
                assert one.weight == 0
                assert any("hidden" in line for line in one.lines())
            assert one.weight == pytest.approx(float(found.weights(0, 4, 5, col)), abs=2e-6)
            total += one.contribution
        # The model's own sum, in float32.
        torch.testing.assert_close(total, one.output, atol=1e-5, rtol=0)
        assert (one.q_unrotated is None) == (family in ("bloom", "t5"))
    with pytest.raises(OptionError, match="row 99, column 0 is asked for; there are rows 0 … 1"):
        found.arithmetic(0, 0, 99, 0)


@pytest.mark.parametrize(
    "family",
    ["llama", "mistral", "gemma2", "gpt_oss", "bloom", "bert", "mpnet", "t5", "modernbert"],
)
def test_saved_and_loaded_it_is_the_same(small_model, bytes_tokenizer, family, tmp_path):
    attn = "eager" if family in ("gemma2", "gpt_oss", "bloom", "mpnet") else "sdpa"
    found = trace(small_model(family, attn, vocab_size=320), TEXT, tokenizer=bytes_tokenizer)
    path = tmp_path / "a.trace.safetensors"
    found.save(path)
    again = Trace.load(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert again.path == found.path == path
    assert repr(again) == repr(found)
    assert again.tokens == found.tokens
    assert again.texts == found.texts
    assert list(again.parts) == list(found.parts)
    for part, one in found.parts.items():
        other = again.parts[part]
        for layer in range(one.layers):
            a, b = one.record(layer), other.record(layer)
            assert repr(a.mask) == repr(b.mask)
            assert repr(a.biases) == repr(b.biases)
            assert torch.equal(a.q, b.q)
            assert a.q.dtype == b.q.dtype
            # Memory is laid out anew, so products may sum in another order.
            torch.testing.assert_close(
                all_weights(one, layer), all_weights(other, layer), atol=5e-6, rtol=0
            )
    assert again.verify().passed


def test_a_file_that_is_no_trace_is_refused(tmp_path, small_model, bytes_tokenizer):
    from safetensors.torch import save_file

    other = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(1)}, other)
    with pytest.raises(DataError, match="holds no trace; it is another safetensors file"):
        Trace.load(other)
    found = trace(small_model("gpt2", vocab_size=320), TEXT, tokenizer=bytes_tokenizer)
    whole = tmp_path / "whole.safetensors"
    found.save(whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-1000])
    with pytest.raises(DataError, match="is cut short or damaged"):
        Trace.load(cut)
    with pytest.raises(StorageError, match="there is no file"):
        Trace.load(tmp_path / "none")
    with pytest.raises(StorageError, match="is not a folder"):
        found.save(tmp_path / "missing" / "a.safetensors")


def test_windows_of_a_long_text(small_model, words_tokenizer):
    model = small_model("bert", vocab_size=120, max_position_embeddings=16)
    text = "the fox jumps the lazy dog " * 6
    with pytest.raises(
        OptionError, match="the text has 44 tokens, but the model reads at most 16; shorten it"
    ):
        trace(model, text, tokenizer=words_tokenizer)
    windows = trace_windows(model, text, tokenizer=words_tokenizer, overlap=0.5)
    assert all(len(one.tokens) <= 16 for one in windows)
    assert windows[0].notes == (f"window of characters 0 … 44 of {len(text)}",)
    assert windows[-1].texts[0].endswith("lazy dog")
    starts = [one.texts[0][:20] for one in windows]
    assert len(starts) == len(windows) > 4
    assert trace_windows(model, "the fox", tokenizer=words_tokenizer)[0].texts == ("the fox",)


def test_the_limit_of_roberta_is_not_its_table(small_model):
    model = small_model("roberta")
    assert trace(model, input_ids=[list(range(5, 69))]).layers == 2
    with pytest.raises(OptionError, match="has 65 tokens, but the model reads at most 64"):
        trace(model, input_ids=[list(range(5, 70))])


def test_ids_alone(small_model):
    model = small_model("llama")
    found = trace(model, input_ids=torch.tensor([5, 6, 7]))
    assert [token.label for token in found.tokens] == ["5", "6", "7"]
    with pytest.raises(OptionError, match="pass tokenizer=…, or input_ids"):
        trace(model, "a text")
    with pytest.raises(OptionError, match=r"reach from 5 to 99, but the model has 99 tokens"):
        trace(model, input_ids=[[5, 99]])
    with pytest.raises(OptionError, match="give either a text or input_ids"):
        trace(model)
    with pytest.raises(OptionError, match="trace with a tokenizer"):
        found.units("words")


def test_out_of_range_and_empty(small_model, bytes_tokenizer):
    model = small_model("gpt2", vocab_size=320)
    with pytest.raises(DataError, match="the text is empty"):
        trace(model, "  ", tokenizer=bytes_tokenizer)
    found = trace(model, TEXT, tokenizer=bytes_tokenizer)
    with pytest.raises(OptionError, match="layer 2 is asked for; GPT2LMHeadModel has layers 0 … 1"):
        found.weights(2, 0)
    with pytest.raises(OptionError, match=r"head 6 is asked for; transformer\.h\.0\.attn has"):
        found.weights(0, 6)
    with pytest.raises(OptionError, match="head -1 is asked for"):
        found.q(0, -1)
    with pytest.raises(OptionError, match="target= is for encoder"):
        trace(model, TEXT, tokenizer=bytes_tokenizer, target="x")


def test_q_k_v_output_and_residual_of_a_head(small_model, bytes_tokenizer):
    found = trace(small_model("llama", vocab_size=320), TEXT, tokenizer=bytes_tokenizer)
    tokens = len(found.tokens)
    assert found.q(0).shape == (6, tokens, 10)
    assert found.k(0).shape == found.v(0).shape == (2, tokens, 10)
    assert torch.equal(found.k(0, 5), found.k(0)[1])
    assert found.residual(1).shape == (tokens, 48)
    mixed = found.weights(1, 4) @ found.v(1, 4)
    torch.testing.assert_close(mixed, found.output(1, 4), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("family", "attn", "message"),
    [
        ("deberta", "eager", "'deberta-v2' cannot be traced: its scores have content-to-position"),
        ("xlnet", "eager", "'xlnet' cannot be traced: its scores have a term of relative"),
        ("falcon", "sdpa", "'falcon' cannot be traced: its attention calls the kernel itself"),
        ("mamba", "eager", "MambaForCausalLM has no attention, so there is nothing to trace"),
    ],
)
def test_families_that_cannot_be_read_are_refused_by_name(small_model, family, attn, message):
    with pytest.raises(OptionError, match=message):
        trace(small_model(family, attn), input_ids=[[5, 6, 7]])


def test_a_cache_of_fixed_size_is_refused(small_model):
    model = small_model("llama")
    model.generation_config.cache_implementation = "static"
    with pytest.raises(
        OptionError, match=r"saw \d+ keys when there were 3 tokens; a cache of fixed"
    ):
        trace(model, input_ids=[[5, 6, 7]], generate=3)


def test_layers_without_attention_are_told_of(small_model):
    found = trace(small_model("lfm2"), input_ids=[[5, 6, 7, 8]])
    assert found.layers == 1
    assert found.record(0).name == "model.layers.1.self_attn"
    assert found.notes == ("1 of the model's 3 layers were seen to attend",)


def test_folders_that_are_no_model(tmp_path):
    with pytest.raises(StorageError, match=r"is not a model: it has no config\.json"):
        trace(tmp_path, "a")
    with pytest.raises(StorageError, match="is not a folder, and no name of a model on the hub"):
        trace(str(tmp_path / "none"), "a")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        trace(tmp_path, "a")


def test_remote_code_is_refused_unless_allowed(tmp_path):
    pytest.importorskip("transformers")
    config = {"model_type": "made_up", "auto_map": {"AutoModel": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(OptionError, match=r"brings Python code of its own.*--trust-remote-code"):
        trace(tmp_path, "a")


def test_a_folder_of_transformers(tmp_path, small_model, words_tokenizer):
    model = small_model("bert", vocab_size=120)
    model.save_pretrained(tmp_path)
    words_tokenizer.save_pretrained(tmp_path)
    found = trace(tmp_path, "the fox")
    expected = trace(model, "the fox", tokenizer=words_tokenizer)
    torch.testing.assert_close(found.weights(1, 1), expected.weights(1, 1), atol=1e-6, rtol=0)


def test_other_modules_are_sent_to_watch():
    with pytest.raises(OptionError, match=r"for Linear, run it under regard\.watch"):
        trace(torch.nn.Linear(2, 2), "a")


@pytest.mark.parametrize("family", ["llama", "bloom", "mpnet"])
def test_one_model_may_be_traced_in_two_threads(small_model, family):
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    model = small_model(family, "eager" if family != "llama" else "sdpa")
    texts = [[5 + i, 9, 30, 7, 11 + 2 * i] for i in range(2)]
    alone = [trace(model, input_ids=[ids]) for ids in texts]
    together = Barrier(2)

    def traced(ids):
        together.wait()
        return [trace(model, input_ids=[ids]) for _ in range(4)]

    with ThreadPoolExecutor(2) as pool:
        for expected, found in zip(alone, pool.map(traced, texts), strict=True):
            for one in found:
                assert one.layers == expected.layers
                torch.testing.assert_close(all_weights(one, 1), all_weights(expected, 1))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
