"""The sources of a run by number. A configuration is {"source": number, "flags": place in FLAGS};
source 0 is the variant that is to be beaten, 1 the template.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from rooflane.tuning import Configuration, Legal, Tunable

# What a source is compiled with: the first unless its head asks for more, in a comment
# "flags: -fopenmp"; the others are tried where nobody has a source to propose.
FLAGS = ("-O3 -march=native", "-O2 -march=native", "-O3 -march=native -funroll-loops",
         "-O3 -march=native -mprefer-vector-width=512", "-O3 -march=native -fno-math-errno")
HEAD = 20  # lines
ASKED = re.compile(r"^[\s/*#]*flags:\s*(-[^*\n]*?)\s*(?:\*/)?$", re.MULTILINE)
DEFAULT: Configuration = {"source": 0, "flags": 0}
TEMPLATE: Configuration = {"source": 1, "flags": 0}
MOST = 1 << 20
TUNABLES = (
    Tunable("source", "number of the source in its run; 0: the variant that is to be beaten", 0,
            MOST, (), selects=True),
    Tunable("flags", "0: as the source asks; else one of the sets that are tried", 0,
            len(FLAGS) - 1, tuple(range(len(FLAGS)))))


class Sources:
    """Texts, each once; implements tuning.Constraints."""

    def __init__(self, template: str):
        self._texts = [template]

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> int | None:
        """The number of a new text; none where it is there already."""
        if text in self._texts:
            return None
        self._texts.append(text)
        return len(self._texts)

    def text(self, number: int) -> str:
        """The text of a source by its number, from 1 on."""
        return self._texts[number - 1]

    def flags(self, configuration: Configuration) -> str:
        """The compiler's."""
        head = "\n".join(self.text(configuration["source"]).splitlines()[:HEAD])
        asked = ASKED.search(head)
        return FLAGS[configuration["flags"]] + (f" {asked[1]}" if asked else "")

    def check(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """Completes or refuses each."""
        return [self._check({**TEMPLATE, **proposal}) for proposal in proposals]

    def nearest(self, proposals: Sequence[Configuration]) -> list[Legal]:
        """The last source in the place of one that there is not."""
        return [self._check({
            "source": min(max(proposal.get("source", 1), 0), len(self)),
            "flags": min(max(proposal.get("flags", 0), 0), len(FLAGS) - 1)})
            for proposal in proposals]

    def _check(self, proposal: Configuration) -> Legal:
        if not 0 <= proposal["source"] <= len(self):
            return Legal(None, f"there are {len(self)} sources")
        if not 0 <= proposal["flags"] < len(FLAGS):
            return Legal(None, f"there are {len(FLAGS)} sets of flags")
        return Legal(proposal)
