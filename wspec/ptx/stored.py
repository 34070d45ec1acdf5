"""What is known of shared memory, by what threads have stored to it: in words, and in bytes where parts of one are."""

from __future__ import annotations

WORD = 4  # bytes of shared memory that are followed together


class Stored:
    """Numbers by their addresses. Words at the addresses `hidden` are not followed."""

    def __init__(self, hidden: frozenset[int]) -> None:
        self._hidden = hidden
        self._words: dict[int, int] = {}
        self._bytes: dict[int, int] = {}  # of words that were not stored whole

    def __bool__(self) -> bool:
        return bool(self._words or self._bytes)

    def forget(self) -> None:
        """Anything may be anywhere."""
        self._words.clear()
        self._bytes.clear()

    def read(self, address: int, size: int) -> int | None:
        """None where that is not known."""
        if size % WORD == 0 and not self._bytes:
            words = [self._words.get(address + at) for at in range(0, size, WORD)]
            return None if None in words else sum((word or 0) << 8 * WORD * at for at, word in enumerate(words))
        found = [self._byte(address + at) for at in range(size)]
        return None if None in found else sum((byte or 0) << 8 * at for at, byte in enumerate(found))

    def _byte(self, address: int) -> int | None:
        word = self._words.get(address - address % WORD)
        return self._bytes.get(address) if word is None else word >> address % WORD * 8 & 0xFF

    def write(self, address: int, size: int, value: int | None) -> None:
        """A number, None of one that is not known. The address is a multiple of the size, or of a word."""
        if size % WORD == 0:
            for at in range(0, size, WORD):
                self._write_word(address + at, None if value is None else value >> 8 * at & 0xFFFFFFFF)
            return
        first = address - address % WORD
        known = self._words.pop(first, None)
        if known is not None:
            self._bytes |= {first + at: known >> 8 * at & 0xFF for at in range(WORD)}
        for at in range(size):
            if value is None or first in self._hidden:
                self._bytes.pop(address + at, None)
            else:
                self._bytes[address + at] = value >> 8 * at & 0xFF

    def _write_word(self, address: int, value: int | None) -> None:
        if self._bytes:
            for at in range(WORD):
                self._bytes.pop(address + at, None)
        if value is None or address in self._hidden:
            self._words.pop(address, None)
        else:
            self._words[address] = value
