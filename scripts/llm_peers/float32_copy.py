"""Copies a GGUF file with its matrices in another format, float32 by default:
float32_copy.py FROM.gguf TO.gguf [F32|BF16|Q8_0]

llama.cpp multiplies quantised weights by activations that it rounds to 8 bits; with a float32 file
it computes in float32, as Rooflane does. Needs the packages gguf and numpy.
"""
from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

OWN = "GGUF."  # the reader's names for the header
FILE_TYPE = "general.file_type"


def copy(source: Path, target: Path, kind: str = "F32") -> None:
    """Metadata as it is, but for the type of the file. Vectors are float32."""
    matrices = gguf.GGMLQuantizationType[kind]
    file_type = {"F32": gguf.LlamaFileType.ALL_F32, "BF16": gguf.LlamaFileType.MOSTLY_BF16,
                 "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}[kind]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith(OWN) or name in (gguf.Keys.General.ARCHITECTURE, FILE_TYPE):
            continue
        value_type = field.types[0]
        element = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), value_type, element)
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if values.ndim == 2 and matrices != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, quantize(values, matrices), raw_dtype=matrices)
        else:
            writer.add_tensor(tensor.name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    copy(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
