"""Documents that a call names instead of sending them: the same request, for those who may see the job they came with."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from deedbox import App, Context, Document, allow
from deedbox.intake.request import Request, Upload
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, principal, road

pytestmark = pytest.mark.anyio
app = App()
TEXT = b"a,b\n1,2\n"


class Papers(BaseModel):
    """One paper, and more."""

    model_config = ConfigDict(extra="forbid")
    paper: Document
    more: list[Document] = Field(default_factory=list[Document])


class Sizes(BaseModel):
    """How long they are."""

    sizes: list[int]


@app.action(roles=["operator"], policy=allow(), key="content")
async def measure_papers(ctx: Context, given: Papers) -> Sizes:
    """Measure papers."""
    return Sizes(sizes=[len(await ctx.document(one)) for one in (given.paper, *given.more)])


async def put(one: Road, who: Principal, body: dict[str, Any], **uploads: list[Upload]) -> UUID:
    return (await one.intake.submit(Request(who, "measure_papers", body, None, "http", uploads=uploads))).job_id


async def number_of(one: Road, job_id: UUID) -> str:
    return str(await one.database.value("SELECT document_id FROM deedbox.job_document WHERE job_id = %s LIMIT 1", job_id))


@proves("G-DOCUMENT-BY-NUMBER")
async def test_a_named_document_is_the_upload_it_names(database: TestDatabase) -> None:
    async with road(database, app) as one:
        first = await put(one, one.caller, {}, paper=[Upload("a.csv", "text/csv", TEXT)])
        number = await number_of(one, first)
        # The same bytes under the same name are the same request, however they are handed in.
        assert await put(one, one.caller, {"paper": {"document_id": number}}) == first
        both = await put(one, one.caller, {"paper": {"document_id": number}, "more": [{"document_id": number}] * 2})
        one.start(one.worker())
        await one.until(both, "completed")
        assert await database.value("SELECT output FROM deedbox.result WHERE job_id = %s", both) == {"sizes": [len(TEXT)] * 3}
        # It has a document of its own: the first job's contents may go before.
        assert await number_of(one, both) != number
        stored: Any = await database.value("SELECT count(*) FROM deedbox.document")
        assert stored == 1


@proves("G-DOCUMENT-BY-NUMBER")
async def test_what_is_not_the_callers_to_see_is_unknown(database: TestDatabase) -> None:
    async with road(database, app) as one:
        other = await principal(database, one.ids, "other", "service", "operator")
        number = await number_of(one, await put(one, one.caller, {}, paper=[Upload("a.csv", "text/csv", TEXT)]))
        for who, named, pointer in (
            (other, {"paper": {"document_id": number}}, "/paper/document_id"),
            (one.caller, {"paper": {"document_id": str(UUID(int=1))}}, "/paper/document_id"),
            (one.caller, {"paper": {"document_id": "no number"}}, "/paper/document_id"),
            (
                one.caller,
                {"paper": {"document_id": number}, "more": [{"document_id": str(UUID(int=2))}]},
                "/more/0/document_id",
            ),
        ):
            with pytest.raises(DeedboxError) as refused:
                await put(one, who, named)
            assert (refused.value.code, refused.value.problems[0].pointer) == ("invalid_input", pointer)
        for odd in (
            {"paper": number},
            {"paper": {"document_id": number, "content": "x"}},
            {"paper": [{"document_id": number}]},
        ):
            with pytest.raises(DeedboxError) as refused:
                await put(one, one.caller, odd)
            assert (refused.value.code, refused.value.problems[0].rule) == ("invalid_input", "upload")
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1


async def test_what_a_job_says_of_its_document_names_it_and_is_not_believed(database: TestDatabase) -> None:
    async with road(database, app) as one:
        first = await put(one, one.caller, {}, paper=[Upload("a.csv", "text/csv", TEXT)])
        number = await number_of(one, first)
        said = {"document_id": number, "name": "b.exe", "media_type": "x/y", "size": 1, "sha256": "0" * 64, "url": "x"}
        assert await put(one, one.caller, {"paper": said}) == first


def test_callers_are_shown_the_number_alone() -> None:
    schema = Papers.model_json_schema()["$defs"]["Document"]
    assert (list(schema["properties"]), schema["required"]) == (["document_id"], ["document_id"])
    assert set(Papers.model_json_schema(mode="serialization")["$defs"]["Document"]["properties"]) > {"document_id", "sha256"}
