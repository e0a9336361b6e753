"""Small models with random weights, one a family, made in a moment."""

import os

import pytest
import torch


def build(family, attn="sdpa", dtype=torch.float32, **settings):
    """A model of 2 or 3 layers whose attention is far from uniform, in evaluation mode."""
    import transformers as t

    base = {"vocab_size": 99, "num_hidden_layers": 2, "num_attention_heads": 6}
    wide = {**base, "hidden_size": 48, "intermediate_size": 40}
    grouped = {**wide, "num_key_value_heads": 2, "head_dim": 10}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    made = {
        "gpt2": (
            t.GPT2LMHeadModel,
            t.GPT2Config,
            {
                "vocab_size": 99,
                "n_embd": 48,
                "n_layer": 2,
                "n_head": 6,
                "n_positions": 64,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
        ),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig, {**grouped, "max_position_embeddings": 64}),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config, grouped),
        "gemma2": (
            t.Gemma2ForCausalLM,
            t.Gemma2Config,
            {**grouped, "sliding_window": 5, "attn_logit_softcapping": 2.0},
        ),
        "gemma3": (
            t.Gemma3ForCausalLM,
            t.Gemma3TextConfig,
            {
                **grouped,
                "sliding_window": 5,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        "mistral": (t.MistralForCausalLM, t.MistralConfig, {**grouped, "sliding_window": 4}),
        "gpt_oss": (
            t.GptOssForCausalLM,
            t.GptOssConfig,
            {**grouped, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4},
        ),
        "bloom": (
            t.BloomForCausalLM,
            t.BloomConfig,
            {"vocab_size": 99, "hidden_size": 48, "n_layer": 2, "n_head": 6},
        ),
        "bert": (t.BertModel, t.BertConfig, wide),
        "roberta": (t.RobertaModel, t.RobertaConfig, {**wide, "max_position_embeddings": 66}),
        "distilbert": (
            t.DistilBertModel,
            t.DistilBertConfig,
            {"vocab_size": 99, "dim": 48, "n_layers": 2, "n_heads": 6, "hidden_dim": 40},
        ),
        "mpnet": (t.MPNetModel, t.MPNetConfig, {**wide, "max_position_embeddings": 66}),
        "modernbert": (
            t.ModernBertModel,
            t.ModernBertConfig,
            {
                **wide,
                "num_hidden_layers": 3,
                "local_attention": 6,
                "global_attn_every_n_layers": 3,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "cls_token_id": 1,
                "sep_token_id": 2,
            },
        ),
        "t5": (
            t.T5ForConditionalGeneration,
            t.T5Config,
            {
                "vocab_size": 99,
                "d_model": 48,
                "num_layers": 2,
                "num_heads": 6,
                "d_kv": 8,
                "d_ff": 40,
                "decoder_start_token_id": 0,
                "pad_token_id": 0,
            },
        ),
        "bart": (
            t.BartForConditionalGeneration,
            t.BartConfig,
            {
                "vocab_size": 99,
                "d_model": 48,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 6,
                "decoder_attention_heads": 6,
                "encoder_ffn_dim": 40,
                "decoder_ffn_dim": 40,
                "decoder_start_token_id": 2,
                "max_position_embeddings": 64,
            },
        ),
        "falcon": (
            t.FalconForCausalLM,
            t.FalconConfig,
            {"vocab_size": 99, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6},
        ),
        "deberta": (t.DebertaV2Model, t.DebertaV2Config, wide),
        "xlnet": (
            t.XLNetModel,
            t.XLNetConfig,
            {"vocab_size": 99, "d_model": 48, "n_layer": 2, "n_head": 6, "d_inner": 40},
        ),
        "mamba": (
            t.MambaForCausalLM,
            t.MambaConfig,
            {"vocab_size": 99, "hidden_size": 48, "num_hidden_layers": 2},
        ),
        "gpt_neox": (
            t.GPTNeoXForCausalLM,
            t.GPTNeoXConfig,
            {**wide, "rope_parameters": {**rope, "partial_rotary_factor": 0.5}},
        ),
        "phi": (
            t.PhiForCausalLM,
            t.PhiConfig,
            {**wide, "rope_parameters": {**rope, "partial_rotary_factor": 0.5}},
        ),
        "deepseek_v3": (
            t.DeepseekV3ForCausalLM,
            t.DeepseekV3Config,
            {
                **wide,
                "num_key_value_heads": 6,
                "q_lora_rank": None,
                "kv_lora_rank": 12,
                "qk_nope_head_dim": 6,
                "qk_rope_head_dim": 4,
                "v_head_dim": 7,
                "first_k_dense_replace": 2,
            },
        ),
        "lfm2": (
            t.Lfm2ForCausalLM,
            t.Lfm2Config,
            {
                **wide,
                "num_hidden_layers": 3,
                "num_key_value_heads": 2,
                "layer_types": ["conv", "full_attention", "conv"],
                "block_auto_adjust_ff_dim": False,
            },
        ),
        "albert": (t.AlbertModel, t.AlbertConfig, {**wide, "embedding_size": 16}),
    }
    model_class, config_class, defaults = made[family]
    config = config_class(**{**defaults, **settings})
    config._attn_implementation = attn
    torch.manual_seed(sum(map(ord, family)))
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "norm" not in name.lower():
                # Those of T5 are not scaled by 1/√d, and start large.
                parameter.mul_(2 if family == "t5" else 10)
    return model.to(dtype)


@pytest.fixture
def small_model():
    """A function that makes a small model of a family."""
    pytest.importorskip("transformers")
    return build


@pytest.fixture
def trained_folder():
    """A function that finds a trained model below REGARD_DATA, or skips with the reason."""

    def find(*parts):
        data = os.environ.get("REGARD_DATA")
        if not data:
            pytest.skip("REGARD_DATA is not set: the folder of trained models")
        folder = os.path.join(data, *parts)
        if not os.path.isdir(folder):
            pytest.skip(f"there is no {folder}")
        return folder

    return find


SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "a stitch in time saves nine and then some",
    "我喜欢吃洋葱",
    "我真的不喜欢吃洋葱",
    "北京的天气很好",
]


def byte_level():
    """A byte-level tokenizer with so few merges that Chinese and emoji fall to pieces."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES[:2], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def wordpiece():
    """A BERT-like tokenizer: [CLS] a [SEP] b [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(set("".join(SENTENCES)) - {" "})
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "fox", "jump", "##s", "lazy", "dog"]
    vocabulary = {w: i for i, w in enumerate(dict.fromkeys([*words, *letters]))}
    vocabulary |= {f"##{c}": len(vocabulary) + i for i, c in enumerate(letters) if c != "s"}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
    )


@pytest.fixture
def bytes_tokenizer():
    """A byte-level tokenizer made on the spot."""
    pytest.importorskip("transformers")
    return byte_level()


@pytest.fixture
def words_tokenizer():
    """A WordPiece tokenizer made on the spot."""
    pytest.importorskip("transformers")
    return wordpiece()
