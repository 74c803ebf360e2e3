"""Tiny models with random weights whose next token depends on all of their KV cache. Made once, in build/test/vllm."""

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build/test/vllm/models"
VOCABULARY = 1024
CONTEXT = 2048

# Weights are larger than a trained model's: attention then tells tokens apart, and one wrong block changes the output.
RANGE = 0.2


def llama():
    from transformers import LlamaConfig
    return LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=64, **_common())


def gemma3():
    """Hybrid: five layers of six see a window of 64 tokens only."""
    from transformers import Gemma3TextConfig
    return Gemma3TextConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=64, sliding_window=64, query_pre_attn_scalar=64,
                            **_common())


def deepseek2():
    """MLA: one latent vector instead of keys and values. Positions are scaled as in DeepSeek's own models: for plain ones vLLM's
    CPU backend has a kernel that turns queries and keys by those of other tokens in the step."""
    from transformers import DeepseekV2Config
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": CONTEXT // 4, "mscale": 0.707, "mscale_all_dim": 0.707}
    return DeepseekV2Config(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                            num_key_value_heads=4, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128,
                            qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=2, num_experts_per_tok=1,
                            n_shared_experts=1, first_k_dense_replace=3, moe_intermediate_size=64, rope_scaling=yarn, **_common())


MODELS = {"llama": llama, "gemma3": gemma3, "deepseek2": deepseek2}


def _common():
    return dict(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1,
                tie_word_embeddings=False, initializer_range=RANGE)


def _tokenizer(folder):
    """One token for each byte, so that texts and tokens are as long as each other."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: i for i, word in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=CONTEXT)
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    fast.save_pretrained(folder)


def path(name):
    """The folder of a model, made if need be."""
    final = FOLDER / name
    if final.exists():
        return final
    import torch
    from transformers import AutoModelForCausalLM

    making = FOLDER / f".{name}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    _tokenizer(making)
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(MODELS[name]()).to(torch.float32).save_pretrained(making)
    making.rename(final)
    return final
