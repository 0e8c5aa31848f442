"""Makes a folder for onnxruntime-genai from a GGUF file: onnx_folder.py FILE.gguf FOLDER PRECISION

PRECISION is fp32, or int4: MatMulNBits with blocks of 32 weights and activations rounded to 8 bits
(accuracy level 4). The builder of onnxruntime-genai reads the model as transformers writes it, with
a tokenizer; only its names count here. Runs with the packages of both.
"""
from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent))

import transformers_worker  # noqa: E402

INT4 = ["--extra_options", "int4_block_size=32", "int4_accuracy_level=4"]


def write_model(source: str, folder: str) -> None:
    """As transformers reads it."""
    model = transformers_worker.load(source)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    for name, token in ends.items():
        setattr(model.config, name, token)
        setattr(model.generation_config, name, token)
    model.save_pretrained(folder)
    names = {f"t{i}": i for i in range(model.config.vocab_size)}
    tokenizer = Tokenizer(models.BPE(vocab=names, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="t1",
                            eos_token="t2").save_pretrained(folder)


def main() -> None:
    """The folder, complete."""
    source, folder, precision = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        write_model(source, temporary)
        sys.argv = ["builder", "-i", temporary, "-o", folder, "-p", precision, "-e", "cpu",
                    "-c", f"{temporary}/cache", *(INT4 if precision == "int4" else [])]
        runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


if __name__ == "__main__":
    main()
