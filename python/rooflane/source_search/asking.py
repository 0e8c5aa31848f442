"""Asks for sources and reads them out of answers. What goes wrong is counted as for values of
tunables (language_model/asking.py), with two more words: `no source`, and `program` for a proposer
that fails.
"""
from __future__ import annotations

import json
import re

from rooflane.judging import MOST_CHARACTERS
from rooflane.language_model import answer, prompt
from rooflane.language_model.asking import OWN, Asker
from rooflane.language_model.client import Client
from rooflane.language_model.endpoint import Reply, Request
from rooflane.language_model.prompt import Question
from rooflane.source_search import request
from rooflane.source_search.evaluator import SourceEvaluator
from rooflane.strategies.proposer import LONGEST_NOTE, Failed, Program
from rooflane.tuning import History, Proposal, Space

PROPOSER = "proposer"  # the source of a program's proposals
LONGEST_HEAD = 1000  # characters of a function's arguments


class ProgramTransport:
    """A transport to a program that is told a document in a line and answers with a line. It is
    started with the first request, and again after a failure."""

    def __init__(self, command: str):
        self.model = command
        self._program: Program | None = None

    def send(self, asked: Request, timeout: float) -> Reply:
        """One line each way."""
        try:
            self._program = self._program or Program(self.model)
            told = self._program.ask([json.loads(asked.messages[-1]["content"])], timeout)
        except Failed as failure:
            self.close()
            return Reply(failure="program", detail=str(failure))
        return Reply(text=json.dumps(told))

    def close(self) -> None:
        """Ends the program."""
        if self._program is not None:
            self._program.end()
        self._program = None


class SourceAsker(Asker):
    """Asks the model, or the program, behind `client`. The sources of a resumed run get their
    numbers again."""

    def __init__(self, space: Space, client: Client, evaluator: SourceEvaluator, to_program: bool):
        super().__init__(space, client)
        self.own = PROPOSER if to_program else OWN
        self._evaluator, self._to_program = evaluator, to_program
        for exchange in self.options.earlier:
            if not exchange.failure:
                for text, _ in sources_of(exchange.answer, space.kernel):
                    evaluator.sources.add(text)

    def _request(self, history: History, question: Question) -> prompt.Asked:
        document = request.document_of(history, self._evaluator, question, self.options.facts)
        if self._to_program:
            return request.ask_program(document)
        return request.ask_model(document, self._brief())

    def _read(self, text: str, history: History, count: int) -> list[Proposal] | str:
        found = sources_of(text, self.space.kernel)
        if not found:
            return "refusal" if answer.is_refusal(text) else "no source"
        # All get numbers, also what is beyond the wanted: a run that goes on counts the same.
        numbers = [(self._evaluator.sources.add(source), note) for source, note in found]
        proposals = [Proposal({"source": number, "flags": 0}, self.own, note)
                     for number, note in numbers if number is not None][:count]
        return proposals or "unusable"


def sources_of(text: str, kernel: str) -> list[tuple[str, str]]:
    """The sources of an answer with a note each: of a JSON object with `source` or `sources`, else
    code blocks, else the whole text; those that define a function of the kernel's name, or a
    plugin's table."""
    text = answer.THOUGHTS.sub("", text[:MOST_CHARACTERS])
    note = ""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict):
        listed = told.get("sources", [told.get("source")])
        texts = [each for each in listed if isinstance(each, str)] \
            if isinstance(listed, list) else []
        note = str(told.get("note") or "")[:LONGEST_NOTE]
    else:
        fenced = [each.group(2) for each in answer.FENCE.finditer(text)]
        texts = fenced or [text]
    head = rf"{re.escape(kernel)}\s*\([^;{{}}]{{0,{LONGEST_HEAD}}}\)\s*{{"
    defines = re.compile(rf"\b(?:{head}|rooflane_describe)")
    return [(each.strip() + "\n", note) for each in texts if defines.search(each)]
