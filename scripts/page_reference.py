"""Tables of docs/reference.md, from what the program says of itself: verbs, options, environment
variables, parameters, tensors, columns, fields of JSON. Used by page_tables.py.
"""
from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_pages

Json = dict[str, Any]
# Each size gets a prime of its own, so that a tensor's shape shows which sizes it has.
PRIMES = (101, 103, 107, 109, 113, 127, 131)
# Sizes that must divide each other, and optional ones that are an axis.
SIZES = {"attention": {"heads": 206, "kv_heads": 103, "v_dim": 137}, "rope": {"head_dim": 218},
         "topk": {"k": 7}, "gemm": {"batch": 109},
         "im2patch": {"batch": 101, "channels": 3, "height": 404, "width": 412, "patch": 4}}
PRODUCTS = {404 * 412 // 16: "height·width/patch²", 3 * 16: "channels·patch²"}


def asked(program: Path, *arguments: str) -> Json:
    """What the program answers as JSON. Raises CalledProcessError where it refuses."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    answer: Json = json.loads(done.stdout)
    return answer


def verbs(program: Path) -> list[list[str]]:
    """Each verb and what it does."""
    return [[f"`{verb['name']}`", verb["summary"]] for verb in asked(program, "--verbs")["verbs"]]


def options(program: Path, verb: str) -> list[list[str]]:
    """Each option of a verb, with its value, as `--help` and the manual page have it."""
    found, = (each for each in command_pages.verbs_of(asked(program, "--verbs"))
              if each.name == verb)
    lines = []
    for option in [*found.positionals, *found.options]:
        if option.names[-1] not in ("--help", "--version"):
            between = "" if option.value.startswith("[=") else " "
            names = ", ".join(option.names) + (between + option.value if option.value else "")
            lines.append([f"`{names}`", option.help, "yes" if option.repeatable else ""])
    return lines


def environment(_: Path) -> list[list[str]]:
    """Each environment variable that the manual page has."""
    return [[f"`{name}`", effect] for name, effect in command_pages.ENVIRONMENT.items()]


def fields(program: Path, document: str) -> list[list[str]]:
    """Each field of a JSON document, with its type and meaning; a row's are the CSV's columns."""
    schema = asked(program, "schema", document)

    def described(at: Json, name: str) -> Iterator[list[str]]:
        while reference := at.get("$ref"):
            rest = {key: value for key, value in at.items() if key != "$ref"}
            at = {**schema["$defs"][reference.rsplit("/", 1)[-1]], **rest}
        for choice in at.get("anyOf", []):  # a document, or null
            if choice.get("type") != "null":
                at = {**choice, **at}
        kinds = at.get("type", "any")
        if name:
            yield [f"`{name}`", kinds if isinstance(kinds, str) else " or ".join(kinds),
                   at.get("description", "")]
        if "run_id" in at.get("properties", {}):  # a row
            return
        if isinstance(at.get("items"), dict):
            yield from list(described(at["items"], f"{name}[]"))[1:]
        for key, value in at.get("properties", {}).items():
            yield from described(value, f"{name}.{key}" if name else key)

    return list(described(schema, ""))


def columns(program: Path) -> list[list[str]]:
    """Each column of the CSV, in its order, with its type and meaning."""
    kinds = {"string": "text", "integer": "integer", "number": "number"}
    lines = []
    for name, column in asked(program, "schema")["$defs"]["row"]["properties"].items():
        types = column["type"] if isinstance(column["type"], list) else [column["type"]]
        kind, = (kinds[each] for each in types if each != "null")
        lines.append([f"`{name}`", kind, column.get("description", "")])
    return lines


def default_of(parameter: Json) -> str:
    if parameter["required"]:
        return "required"
    value = parameter.get("default")
    return "derived" if value is None else f"`{value:g}`" if isinstance(value, float) \
        else f"`{value}`"


def parameters(program: Path, kernel: str) -> list[list[str]]:
    """Each parameter of a kernel's problems, in the order in which they are printed."""
    lines = []
    for parameter in kernel_record(program, kernel)["parameters"]:
        choices = ", ".join(f"`{choice}`" for choice in parameter.get("choices", []))
        takes = {"size": f"integer, at least {parameter.get('least', 0)}", "flag": "0 or 1",
                 "real": "number", "choice": f"one of {choices}",
                 "chain": f"names joined by `+`: {choices}"}[parameter["kind"]]
        lines.append([f"`{parameter['name']}`", takes, default_of(parameter)])
    return lines


def kernel_record(program: Path, kernel: str) -> Json:
    record, = (each for each in asked(program, "list", "--json")["kernels"]
               if each["name"] == kernel)
    return dict(record)


def options_of(parameter: Json) -> Iterator[str]:
    """The settings of a parameter that may add tensors to a problem or change their shapes."""
    if parameter["kind"] == "flag":
        yield f"{parameter['name']}=1"
    elif parameter["kind"] == "chain":
        yield from (f"{parameter['name']}={choice}" for choice in parameter["choices"])
    elif parameter["name"] == "beta":  # gemm's c0 is read only where beta is not 0
        yield "beta=1"
    elif parameter["name"] == "b_type":  # 8-bit weights come with the scales of their columns
        yield "b_type=s8c,trans_b=1"


def tensors(program: Path, kernel: str) -> list[list[str]]:
    """Each tensor of a kernel, with its role and shape, and the setting that a problem needs to
    have it; settings that change a shape are listed as lines of their own."""
    described = kernel_record(program, kernel)["parameters"]
    given = SIZES.get(kernel, {})
    sizes = {parameter["name"]: given.get(parameter["name"], prime)
             for parameter, prime in zip(described, PRIMES, strict=False)
             if parameter["kind"] == "size" and parameter["required"]} | given
    needed = [f"{p['name']}={p['choices'][0]}" for p in described
              if p["required"] and p["kind"] == "choice"]
    base = f"{kernel}:" + ",".join([*(f"{n}={v}" for n, v in sizes.items()), *needed])
    names = {value: name for name, value in sizes.items()}

    def axis(value: int) -> str:
        half = names.get(value // 2) if value % 2 == 0 else None
        return names.get(value) or (f"2·{half}" if half else PRODUCTS.get(value, str(value)))

    lines: list[list[str]] = []
    for setting in ["", *(s for parameter in described for s in options_of(parameter))]:
        problem = asked(program, "list", "--json", "--shape",
                        f"{base},{setting}" if setting else base)["problems"][0]
        for tensor in problem["tensors"]:
            shape = "[" + ", ".join(map(axis, tensor["shape"])) + "]"
            line = [f"`{tensor['name']}`", tensor["role"], shape, tensor["dtype"]]
            if all(known[:3] != line[:3] for known in lines):
                lines.append([*line, f"`{setting}`" if setting else "always"])
    return lines
