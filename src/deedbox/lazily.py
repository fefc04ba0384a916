"""Names of a package that are imported when they are first asked for (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def named(package: str, places: Mapping[str, str]) -> Callable[[str], object]:
    """A module's `__getattr__` that imports each name from its place below `package`, once.

    What it returns raises AttributeError for any other name.
    """

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
