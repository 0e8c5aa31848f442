#!/usr/bin/env python3
"""The manual page and the completions of bash and zsh: command_pages.py PROGRAM MAN BASH ZSH

From what `PROGRAM --verbs` says, which is the text of `--help`, and from the options that
python/rooflane declares for verbs that are scripts. Run by the build; standard library only.
"""
from __future__ import annotations

import ast
import email.utils
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from script_help import answer_help

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "rooflane"
# Where a verb's options are declared; default: a folder of its name.
FOLDERS = {"tune": "tuner", "bisect": "bisection"}
CHANGELOG = PACKAGE.parent.parent / "debian" / "changelog"
MATHS = ["fp32", "3xtf32", "bf16", "f16", "int8", "int8-dynamic"]
EXIT_STATUS = {
    "0": "All good.",
    "1": "A check failed: a row FAILED, SUSPECT, TIMEOUT, BUILD_ERROR or RUNTIME_ERROR, or a "
         "regression.",
    "2": "An argument is wrong; nothing was written over.",
    "3": "A valid request that this machine or build cannot serve."}
ENVIRONMENT = {
    "ROOFLANE_TRAITS": "File of the machine's traits for the cost model, or none; default: what "
                       "calibrate keeps.",
    "ROOFLANE_TUNED": "File of tuned schedules, or none; default: what tune keeps.",
    "ROOFLANE_ARCHIVE": "Where tune and archive keep what was tried: a file or the URL of a "
                        "database.",
    "ROOFLANE_SHAPES": "File to which a program that uses the library appends each problem that "
                       "it computes; --preset reads it.",
    "ROOFLANE_JUDGE_ARCHIVE": "File in which judge keeps attempts; default: judge.jsonl in the "
                              "cache folder.",
    "ROOFLANE_PROGRAM_CACHE": "Folder of compiled OpenCL programs, for CPU devices too; default: "
                              "in the cache folder, for other devices.",
    "ROOFLANE_PEERS_PYTHON": "Python interpreter for --peers that has their packages already; "
                             "likewise ROOFLANE_TUNE_PYTHON, ROOFLANE_GENERATE_PYTHON, "
                             "ROOFLANE_ONNX_PYTHON and ROOFLANE_MCP_PYTHON.",
    "XDG_CACHE_HOME": "Parent of the cache folder; default: ~/.cache.",
    "XDG_DATA_HOME": "Parent of the folder of the tuning archive; default: ~/.local/share.",
    "NO_COLOR": "No colour on terminals."}


@dataclass
class Option:
    """An option or a positional argument; `value` is empty where it takes none."""
    names: list[str]
    value: str
    help: str
    repeatable: bool = False

    def choices(self, table: dict[str, Any]) -> list[str]:
        """The words that may follow; nothing where any may."""
        known = {"--kernel": table["kernels"], "--variant": table["variants"],
                 "--preset": table["presets"], "--math": MATHS}
        for name in self.names:
            if name in known and self.value:
                return known[name]
        is_list = re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", self.value)
        return self.value.split("|") if is_list else []

    @property
    def takes_list(self) -> bool:
        """Whether one word may be a list of several, with commas between."""
        return self.value.endswith(",...")


@dataclass
class Verb:
    name: str
    summary: str
    options: list[Option]
    positionals: list[Option]
    examples: list[str]


def literal(node: ast.expr | None) -> str:
    """The text of a node; nothing where it is made when the program runs."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def options_in(source: Path) -> list[Option]:
    """The options that a module of Python declares with argparse, each once."""
    options: dict[str, Option] = {}
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        names = [name for name in map(literal, node.args) if name.startswith("-")]
        words = {keyword.arg: keyword.value for keyword in node.keywords}
        is_flag = literal(words.get("action")).startswith("store_")
        value = "" if is_flag else literal(words.get("metavar")) or "VALUE"
        if names:
            options.setdefault(names[-1], Option(
                names, value, literal(words.get("help")).replace("%%", "%"),
                literal(words.get("action")) == "append"))
    return list(options.values())


def verbs_of(table: dict[str, Any]) -> list[Verb]:
    """The verbs in the program's order; options of scripts from their sources."""
    def described(entries: list[dict[str, Any]]) -> list[Option]:
        return [Option(entry["names"], entry["value"], entry["help"], entry["repeatable"])
                for entry in entries]

    verbs = []
    for verb in table["verbs"]:
        source = PACKAGE / FOLDERS.get(verb["name"], verb["name"]) / "arguments.py"
        options = described(verb["options"]) if "options" in verb else \
            [Option(["-h", "--help"], "", "print this help"), *options_in(source)]
        verbs.append(Verb(verb["name"], verb["summary"], options,
                          described(verb.get("positionals", [])), verb.get("examples", [])))
    return verbs


def roff(text: str) -> str:
    """Text in a manual page: no letter of it is a request or a hyphen that breaks."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    text = text.replace("~", "\\(ti").replace("^", "\\(ha")
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def man_option(option: Option) -> str:
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names)
    between = "" if option.value.startswith("[=") else " "
    value = f"{between}\\fI{roff(option.value)}\\fR" if option.value else ""
    again = "  May be given several times." if option.repeatable else ""
    text = f"{option.help[:1].upper()}{option.help[1:]}." if option.help else "See --help."
    return f".TP\n{names}{value}\n{roff(text + again)}\n"


def man_verb(verb: Verb) -> str:
    words = "".join(f" \\fI{roff(each.names[0])}\\fR" + (" ..." if each.repeatable else "")
                    for each in verb.positionals)
    text = f".SS {roff(verb.name)}\n\\fBrooflane {roff(verb.name)}\\fR [options]{words}\n.PP\n"
    text += roff(f"{verb.summary[:1].upper()}{verb.summary[1:]}.") + "\n"
    text += "".join(map(man_option, [*verb.positionals, *verb.options]))
    if verb.examples:
        lines = "\n".join(map(roff, verb.examples))
        text += f".PP\nExamples:\n.PP\n.nf\n.RS 4\n{lines}\n.RE\n.fi\n"
    return text


def release_date() -> str:
    """The date of the latest release, so that the same source gives the same page."""
    line = re.search(r"(?m)^ -- .*>  (.*)$", CHANGELOG.read_text(encoding="utf-8"))
    assert line, CHANGELOG
    return email.utils.parsedate_to_datetime(line[1]).strftime("%Y-%m-%d")


def man_page(table: dict[str, Any], verbs: list[Verb]) -> str:
    text = f'.TH ROOFLANE 1 {release_date()} "rooflane {table["version"]}" "User Commands"\n'
    text += ".SH NAME\n" + roff("rooflane") + " \\- " + roff(
        "which implementation of a kernel is fastest, and how far it is from the limit") + "\n"
    text += ".SH SYNOPSIS\n\\fBrooflane\\fR \\fIVERB\\fR [\\fIarguments\\fR]\n"
    text += ".SH DESCRIPTION\n" + roff(
        "Runs kernels (GEMM, softmax, LayerNorm, attention and other operations of models) in\n"
        "several implementations, checks each against a double-precision reference, times them\n"
        "side by side and compares the times with limits measured on the same machine in the same\n"
        "run.\n"
        "Data goes to standard output, everything else to standard error.") + "\n"
    text += ".SH VERBS\n" + "".join(map(man_verb, verbs))
    for title, entries in (("EXIT STATUS", EXIT_STATUS), ("ENVIRONMENT", ENVIRONMENT)):
        text += f".SH {title}\n"
        text += "".join(f".TP\n\\fB{name}\\fR\n{roff(says)}\n" for name, says in entries.items())
    return text


BASH = """# bash completion for rooflane, from `rooflane --verbs`
_rooflane_words() {  # VERB OPTION: what may follow the option, "," before it where it is a list
  case $1:$2 in
@VALUES@  esac
}

_rooflane_options() {  # VERB
  case $1 in
@OPTIONS@  esac
}

_rooflane() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words prefix=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '@VERBS@ --help --version --verbs' -- "$current")
    return
  fi
  # Readline parts --option=value at the equals sign.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  words=$(_rooflane_words "${COMP_WORDS[1]}" "$before")
  if [[ $words == ,* && $current == *,* ]]; then
    prefix=${current%,*},
    current=${current##*,}
  fi
  if [[ -z $words && $current == -* ]]; then words=$(_rooflane_options "${COMP_WORDS[1]}"); fi
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "${words#,}" -- "$current")
  fi
}

# Files where no words are known.
complete -o default -F _rooflane rooflane
"""


def bash_completion(table: dict[str, Any], verbs: list[Verb]) -> str:
    values, options = "", ""
    for verb in verbs:
        names = [name for option in verb.options for name in option.names]
        options += f"    {verb.name}) echo '{' '.join(names)}' ;;\n"
        for option in verb.options:
            if words := option.choices(table):
                pattern = "|".join(f"{verb.name}:{name}" for name in option.names)
                comma = "," if option.takes_list else ""
                values += f"    {pattern}) echo '{comma}{' '.join(words)}' ;;\n"
    return BASH.replace("@VALUES@", values).replace("@OPTIONS@", options).replace(
        "@VERBS@", " ".join(verb.name for verb in verbs))


def zsh_text(text: str) -> str:
    """Text in a description: neither its end nor a quote."""
    return re.sub(r"([\\\[\]:])", r"\\\1", text).replace("'", "'\\''")


def zsh_option(option: Option, table: dict[str, Any]) -> str:
    words = option.choices(table)
    message = zsh_text(option.value)
    if not option.value:
        action = ""
    elif words and option.takes_list:
        action = f":{message}:_values -s , {message} {' '.join(words)}"
    elif words:
        action = f":{message}:({' '.join(words)})"
    else:
        is_path = re.search("FILE|PATH|DIR", option.value)
        action = f":{message}:" + ("_files" if is_path else " ")
    if option.value.startswith("["):  # --json[=FILE]
        action = ""
    others = "" if option.repeatable else f"({' '.join(option.names)})"
    many = "*" if option.repeatable else ""
    return "\n".join(f"        '{others}{many}{name}[{zsh_text(option.help)}]{action}'"
                     for name in option.names)


def zsh_completion(table: dict[str, Any], verbs: list[Verb]) -> str:
    lines = ["#compdef rooflane", "# zsh completion for rooflane, from `rooflane --verbs`", "",
             "_rooflane() {", "  local -a verbs=("]
    lines += [f"    '{verb.name}:{zsh_text(verb.summary)}'" for verb in verbs]
    lines += ["  )", "  if ((CURRENT == 2)); then", "    _describe verb verbs",
              "    _values option --help --version --verbs", "    return", "  fi",
              "  local verb=$words[2]", "  shift words", "  ((CURRENT--))", "  local -a options",
              "  case $verb in"]
    for verb in verbs:
        lines += [f"    {verb.name})", "      options=("]
        lines += [zsh_option(option, table) for option in verb.options]
        lines += ["      )", "      ;;"]
    lines += ["  esac", "  _arguments -s $options '*:file:_files'", "}", "", '_rooflane "$@"', ""]
    return "\n".join(lines)


def main() -> int:
    answer_help()
    program, *outputs = sys.argv[1:]
    done = subprocess.run([program, "--verbs"], stdout=subprocess.PIPE, text=True, check=True)
    table = json.loads(done.stdout)
    verbs = verbs_of(table)
    for path, write in zip(outputs, (man_page, bash_completion, zsh_completion), strict=True):
        Path(path).write_text(write(table, verbs), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
