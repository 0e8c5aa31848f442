"""`rooflane generate` with a text: makes ids of it, lets the program run the model, and prints text
as ids come back. The program has checked the arguments before it started this."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from rooflane import program
from rooflane.generate.arguments import FLAGS, PASSED, arguments_of
from rooflane.generate.stream import Stream
from rooflane.generate.template import chat_text
from rooflane.generate.vocabulary import Unsupported, Vocabulary

INTERRUPTED = 130


def metadata_of(weights: str) -> dict[str, Any]:
    """The file's metadata. Raises CalledProcessError; the program has said why."""
    done = subprocess.run([program.path(), "generate", "--weights", weights, "--metadata"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["metadata"]


def started(given: argparse.Namespace, ids: list[int]) -> subprocess.Popen[str]:
    """The program at work on the ids; it prints one id a line, and in the end, on standard error,
    what it has to say."""
    command = [str(program.path()), "generate", "--weights", given.weights,
               "--ids", ",".join(map(str, ids))]
    for name in PASSED:
        value = getattr(given, name.replace("-", "_"))
        if value is not None:
            command += [f"--{name}", value]
    command += [f"--{name}" for name in FLAGS if getattr(given, name.replace("-", "_"))]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def texts(process: subprocess.Popen[str], stream: Stream) -> Iterator[str]:
    """The text piece by piece; ends the program at a stop text."""
    assert process.stdout is not None
    for line in process.stdout:
        yield stream.feed(int(line))
        if stream.stopped:
            process.terminate()
            break
    yield stream.finish()


def main(words: list[str]) -> int:
    """Returns the exit status."""
    given = arguments_of(words)
    try:
        metadata = metadata_of(given.weights)
        vocabulary = Vocabulary(metadata)
        text = chat_text(metadata, vocabulary, given.PROMPT) if given.chat else given.PROMPT
        ids = vocabulary.encode(text)
        if not ids:
            raise Unsupported("PROMPT has no token; allowed is one and more")
    except subprocess.CalledProcessError as error:
        return error.returncode if error.returncode > 0 else 1
    except Unsupported as error:
        print(f"rooflane: '{given.weights}': {error}", file=sys.stderr)
        return 2
    stream = Stream(vocabulary, given.stop)
    with started(given, ids) as process:
        try:
            for piece in texts(process, stream):
                sys.stdout.write(piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            process.terminate()
            return INTERRUPTED
        except BrokenPipeError:
            process.terminate()
            return 1
        assert process.stderr is not None
        said = process.stderr.read()
    if process.returncode == 0 or stream.stopped:
        sys.stdout.write("\n")
        sys.stdout.flush()
    sys.stderr.write(said)
    return 0 if stream.stopped else max(process.returncode, 0) or int(process.returncode < 0)
