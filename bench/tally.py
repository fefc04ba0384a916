"""A count that measured processes keep and the bench reads, in a file mapped by both: it costs neither side a message."""

import mmap
import struct
from pathlib import Path
from time import monotonic

_ROW = struct.Struct("<qd")


class Tally:
    """How often something happened, and when first (monotonic, the same clock in every process of a machine)."""

    def __init__(self, path: Path) -> None:
        """Opens the file, and makes it where it is not there."""
        if not path.exists():
            path.write_bytes(bytes(_ROW.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _ROW.size)
        self._count, self._first = _ROW.unpack_from(self._map)

    def add(self) -> None:
        """Count one."""
        if not self._count:
            self._first = monotonic()
        self._count += 1
        _ROW.pack_into(self._map, 0, self._count, self._first)

    def read(self) -> tuple[int, float]:
        """The count, and the moment of the first."""
        count, first = _ROW.unpack_from(self._map)
        return count, first
