"""What an action's effects can lead to, and in which fields only a licensed person may decide about them."""

from typing import Literal

Consequence = Literal["read", "reversible", "consequential", "grave"]

CONSEQUENCES: tuple[Consequence, ...] = ("read", "reversible", "consequential", "grave")
"""From the least to the gravest; the order counts where two are compared."""

LOW: frozenset[Consequence] = frozenset({"read", "reversible"})
"""What may be decided many at once, and what an editor may approve himself."""

LICENSED = frozenset({"medical", "legal", "regulated_finance", "child_safety", "structural"})
"""The domains in which a person with a licence decides: each that an action declares has to be given a role."""


def graver(one: Consequence, other: Consequence) -> Consequence:
    """The graver of two."""
    return CONSEQUENCES[max(CONSEQUENCES.index(one), CONSEQUENCES.index(other))]
