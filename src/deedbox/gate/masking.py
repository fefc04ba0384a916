"""Masking what is shown of a job to somebody who neither asked for it nor decides it.

Fields that the action or a connector marks are masked where they stand; their values are masked as well wherever else they turn
up: in a mail made from the input, in what a provider answered. What a provider says of a failure is masked before it
is kept, because its event is told to whoever listens.
"""

from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from deedbox.model.sensitive import Path, masked, scrubbed, texts_at
from deedbox.store import sensitive
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Mask:
    """What is sensitive about one job. The empty one masks nothing."""

    output_paths: tuple[Path, ...] = ()
    payload_paths: dict[str, tuple[Path, ...]] = field(default_factory=dict[str, tuple[Path, ...]])
    hidden: tuple[str, ...] = ()
    input_paths: tuple[Path, ...] = ()

    def input(self, value: Any) -> Any:
        """An input as it may be shown."""
        return self.texts(masked(value, self.input_paths))

    def output(self, value: Any) -> Any:
        """An output, or a draft of one, as it may be shown."""
        return self.texts(masked(value, self.output_paths))

    def payload(self, connector: str, value: Any) -> Any:
        """What goes to a connector, as it may be shown."""
        return self.texts(masked(value, self.payload_paths.get(connector, ())))

    def texts(self, value: Any) -> Any:
        """Any value with the sensitive texts in it masked."""
        if not self.hidden:
            return value
        if isinstance(value, str):
            return scrubbed(value, self.hidden)
        if isinstance(value, dict):
            return {name: self.texts(item) for name, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, (list, tuple)):
            return [self.texts(item) for item in cast("list[Any]", value)]
        return value


NOTHING = Mask()


async def mask_of(connection: Connection, job_id: UUID) -> Mask:
    """The mask of a job."""
    marked = await sensitive.of_job(connection, job_id)
    if marked is None:
        return NOTHING
    hidden = {*texts_at(marked.given, marked.input_paths), *texts_at(marked.output, marked.output_paths)}
    return Mask(
        marked.output_paths,
        marked.payload_paths,
        tuple(sorted(hidden, key=lambda text: (-len(text), text))),
        marked.input_paths,
    )
