"""The audit as people ask for it: is the chain whole, and all of it as lines to keep elsewhere."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import audit
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """How many entries the chain has, the hash of its head to compare with one exported earlier, and its first broken link."""

    entries: int
    head_sha256: str
    first_broken: int | None

    @property
    def whole(self) -> bool:
        """Whether no entry up to the head is missing or was changed."""
        return self.first_broken is None


async def verify(pool: Pool) -> int | None:
    """The number of the first entry that is missing or was changed; None where the chain is whole up to its head."""
    return await audit.verify(pool)


async def check(pool: Pool) -> ChainCheck:
    """Verify the chain and say where it ends."""
    async with autocommit(pool) as connection:
        entries, head_sha256 = await audit.head(connection)
    return ChainCheck(entries, head_sha256.hex(), await audit.verify(pool))


async def export(pool: Pool, principal: Principal) -> AsyncIterator[str]:
    """All entries as lines of JSON (NDJSON, without line ends), the last line the head.

    Raises DeedboxError permission_denied: the audit spans all tenants and is for those who administer.
    """
    if not principal.may("administer"):
        raise DeedboxError("permission_denied", "Exporting the audit needs a role that may administer.")
    async for line in audit.export(pool):
        yield line
