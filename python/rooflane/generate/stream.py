"""Text from ids as they come: whole characters only, and nothing of a stop text."""
from __future__ import annotations

import codecs
from collections.abc import Sequence

from rooflane.generate.vocabulary import Vocabulary


class Stream:
    """Feed it ids; each call returns the text that is certain by now."""

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stops = [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # may be the beginning of a stop text
        self.stopped = False

    def feed(self, number: int) -> str:
        """What `number` makes certain; sets `stopped` where a stop text is complete."""
        return self._release(self._decoder.decode(self._vocabulary.bytes_of(number)))

    def finish(self) -> str:
        """What was held back, when no more will come."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + held

    def _release(self, text: str) -> str:
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[:min(found)], ""
            return text
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _overlap(self, stop: str) -> int:
        """How much of the end of the held text begins the stop text."""
        longest = min(len(stop) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._held.endswith(stop[:n])), 0)
