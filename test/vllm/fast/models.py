"""Configurations and tokenizers, without weights: all that a scheduler asks of a model."""

import shutil


def opt(folder):
    """An OPT of 12 layers, of which vLLM's own tests ask as facebook/opt-125m. One token for each byte."""
    if folder.exists():
        return folder
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import OPTConfig, PreTrainedTokenizerFast

    making = folder.with_name(f".{folder.name}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    OPTConfig(architectures=["OPTForCausalLM"]).save_pretrained(making)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(["<s>", "</s>", *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                            model_max_length=2048).save_pretrained(making)
    making.rename(folder)
    return folder
