"""A model that can be computed in one's head: the KV of a position is a number made of all tokens up to it, and the next
token is made of that number. So what must lie in a block is known for every request, and one wrong byte changes the output."""

import numpy

_MASK = (1 << 64) - 1
EOS = 1
VOCABULARY = 1000


class Text:
    """A prompt and what the model says after it, as far as anybody asked."""

    def __init__(self, prompt):
        self.prompt = list(prompt)
        self._tokens, self._states = list(prompt), []
        self._array = numpy.zeros(0, numpy.uint64)

    def _extend(self, positions):
        state = self._states[-1] if self._states else 0
        while len(self._states) < positions:
            if len(self._states) == len(self._tokens):
                self._tokens.append(EOS if state % 23 == 0 else 2 + state % (VOCABULARY - 2))
            state = (state * 6364136223846793005 + self._tokens[len(self._states)] * 2 + 1442695040888963407) & _MASK
            self._states.append(state)

    def kv(self, start, stop):
        """What lies in the cache for these positions."""
        if stop > len(self._array):
            self._extend(stop + 32)
            self._array = numpy.array(self._states, numpy.uint64)
        return self._array[start:stop]

    def token(self, position):
        """The token at a position after the prompt."""
        self._extend(position + 1)
        return self._tokens[position]

    def answer(self, most):
        """The tokens that a request gets which asks for at most so many."""
        out = []
        while len(out) < most and (not out or out[-1] != EOS):
            out.append(self.token(len(self.prompt) + len(out)))
        return out
