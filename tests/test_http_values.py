"""What no store can keep and what is no request at all: refused with a pointer, nothing stored, the server still serving."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable

import httpx2
import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import LIMITS, Api, api, form, part, problem_of

pytestmark = pytest.mark.anyio
NOTE = "/api/actions/note_thing/jobs"
PAPER = "/api/actions/read_paper/jobs"
JSON = {"Content-Type": "application/json", "Idempotency-Key": "k"}

TEXTS = {
    "nul": b'"a\\u0000b"',
    "lone high surrogate": b'"\\ud800"',
    "lone low surrogate": b'"a\\udfffb"',
    "surrogates in the wrong order": b'"\\udc00\\ud800"',
}
NUMBERS = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "minus Infinity": b"-Infinity",
    "1e400000": b"1e400000",
    "2^53": b"9007199254740992",
    "5000 digits": b"9" * 5000,
}
PLACES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a field": (lambda value: b'{"text": %s}' % value, "/text"),
    "deep inside": (lambda value: b'{"anything": {"a/b": [1, {"c~d": %s}]}}' % value, "/anything/a~1b/1/c~0d"),
    "a member of any kind": (lambda value: b'{"anything": %s}' % value, "/anything"),
}
PROBE = "after all of this the server still serves"


async def refused(one: Api, client: httpx2.AsyncClient, response: httpx2.Response, *expected: object) -> None:
    """The refusal is as expected, nothing was stored, and a good call is taken (and its job removed from the count)."""
    assert problem_of(response)[: len(expected)] == expected
    assert set((await one.stored()).values()) == {0}
    assert (await client.get("/healthz")).status_code == 200


async def still_serves(one: Api, client: httpx2.AsyncClient) -> None:
    """A good call with the key that was refused is taken: refusals bind no key."""
    response = await client.post(NOTE, json={"text": PROBE}, headers={"Idempotency-Key": "k"})
    assert (response.status_code, "idempotent-replayed" in response.headers) == (202, False)
    assert (await one.stored())["job"] == 1


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_values_no_store_can_keep_are_refused_with_a_pointer_wherever_they_stand(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        for value in (TEXTS | NUMBERS).values():
            for spell, where in PLACES.values():
                response = await client.post(NOTE, content=spell(value), headers=JSON)
                await refused(one, client, response, 400, "invalid_value", [where])
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_member_names_no_store_can_keep_are_refused(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        names = {
            b'"a\\u0000b"': "/anything/a\\u0000b",
            b'"\\ud800"': "/anything/\\ud800",
        }
        for name, where in names.items():
            response = await client.post(NOTE, content=b'{"anything": {%s: 1}}' % name, headers=JSON)
            await refused(one, client, response, 400, "invalid_value", [where])
        twice = await client.post(NOTE, content=b'{"anything": {"a": 1, "\\u0061": 1}}', headers=JSON)
        await refused(one, client, twice, 400, "invalid_value", ["/anything/a"])
        outer = await client.post(NOTE, content=b'{"text": "a", "text": "a"}', headers=JSON)
        await refused(one, client, outer, 400, "invalid_value", ["/text"])
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_depth_size_and_texts_that_are_no_json(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        depth = 20_000
        deep = b'{"anything": ' + b"[" * depth + b"]" * depth + b"}"
        response = await client.post(NOTE, content=deep, headers=JSON)
        await refused(one, client, response, 400, "invalid_value")
        objects = b'{"anything": ' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}"
        response = await client.post(NOTE, content=objects, headers=JSON)
        await refused(one, client, response, 400, "invalid_value", ["/anything" + "/a" * 63])
        for text in (b"", b"{", b"nonsense", b'{"a":1}x', b'\xef\xbb\xbf{"text":""}', b'{"text":"\xff"}', b"{'text': 1}"):
            await refused(one, client, await client.post(NOTE, content=text, headers=JSON), 400, "invalid_json")
        for text in (b"[]", b"null", b'"text"', b"1"):
            await refused(one, client, await client.post(NOTE, content=text, headers=JSON), 400, "invalid_input", [""])
        wrong = await client.post(NOTE, json={"number": "x", "text": None}, headers={"Idempotency-Key": "k"})
        await refused(one, client, wrong, 400, "invalid_input", ["/number", "/text"])
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_bodies_beyond_the_limit_are_refused_however_they_are_sent(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        large = b'{"text": "' + b"x" * (40 << 20) + b'"}'
        await refused(one, client, await client.post(NOTE, content=large, headers=JSON), 413, "body_too_large", [""])

        async def chunks() -> AsyncGenerator[bytes, None]:
            for start in range(0, len(large), 1 << 16):
                yield large[start : start + (1 << 16)]

        chunked = await client.post(NOTE, content=chunks(), headers=JSON)
        await refused(one, client, chunked, 413, "body_too_large", [""])
        # Without a key nothing is read at all, and the caller is still heard out and told.
        async with one.client(None) as nobody:
            assert problem_of(await nobody.post(NOTE, content=large, headers=JSON))[:2] == (401, "unauthenticated")
        # Who asks before sending is answered before sending.
        head = f"POST {NOTE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {one.key}\r\nContent-Type: application/json\r\n"
        answer = await one.raw((head + "Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n").encode())
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in answer.lower()
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_keys_that_cannot_be_used(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        keys: list[bytes] = [
            b"",
            b'""',
            b'" "',
            b'" a"',
            b'"a "',
            b'"a',
            b'"a"b"',
            b'"a";p=1',
            b'"a\\nb"',
            b"x" * 256,
            b'"' + b"x" * 256 + b'"',
            b"x" * 20_000,
            "schlüssel".encode(),
            b"\xff",
            b"a\tb",
        ]
        for key in keys:
            headers = [(b"Idempotency-Key", key), (b"Content-Type", b"application/json")]
            response = await client.post(NOTE, content=b"{}", headers=headers)
            await refused(one, client, response, 400, "key_invalid", ["/Idempotency-Key"])
        twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")]
        await refused(one, client, await client.post(NOTE, content=b"{}", headers=twice), 400, "key_invalid")
        missing = await client.post(NOTE, content=b"{}", headers={"Content-Type": "application/json"})
        await refused(one, client, missing, 400, "key_required")
        # A NUL or a bare line end in a header never reaches us: the parser of HTTP refuses it.
        for raw in (b"a\x00b", b"a\nb: c"):
            head = f"POST {NOTE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {one.key}\r\nContent-Type: application/json\r\n"
            answer = await one.raw(head.encode() + b"Idempotency-Key: " + raw + b"\r\nContent-Length: 2\r\n\r\n{}")
            assert b" 400 " in answer.split(b"\r\n", 1)[0]
        assert set((await one.stored()).values()) == {0}
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_multipart_fields_and_names_no_store_can_keep(database: TestDatabase) -> None:
    good = part("file", b"content", file="a.txt")
    cases: list[tuple[tuple[str, bytes], str]] = [
        (part("title", b"a\x00b"), "/title"),
        (part("title", b"\xed\xa0\x80"), "/title"),
        (part("title", b"\xff\xfe"), "/title"),
        (part("title", b"caf\xe9", media_type="text/plain; charset=iso-8859-1"), "/title"),
        (part("ti\x00tle", b"a"), "/ti\\u0000tle"),
        (('Content-Disposition: form-data; name="ti\xedtle"', b"a"), "/ti\\udcedtle"),
        (part("", b"a"), ""),
        (part("n" * 256, b"a"), ""),
        (part("more", b"a", file="a\x00.txt"), "/more"),
        (part("more", b"a", file="a\x07.txt"), "/more"),
        (('Content-Disposition: form-data; name="more"; filename="\xff.txt"', b"a"), "/more"),
        (('Content-Disposition: form-data; name="more"; filename="\xed\xa0\x80"', b"a"), "/more"),
        (part("more", b"a", file="f" * 256), "/more"),
        (part("more", b"a", file=""), "/more"),
        (part("more", b"a", file=" "), "/more"),
        (part("more", b"a", file="../.."), "/more"),
        (part("more", b"a", file="dir/"), "/more"),
        (part("more", b"a", file="a.txt", media_type="text/\x00plain"), "/more"),
        (part("more", b"a", file="a.txt", media_type="x" * 300 + "/y"), "/more"),
        (part("input", b'{"title": "a\\u0000b"}'), "/title"),
        (part("input", b'{"pages": 1e999}'), "/pages"),
    ]
    async with api(database) as one, one.client() as client:
        for bad, where in cases:
            body, headers = form([good, bad])
            response = await client.post(PAPER, content=body, headers=headers)
            assert problem_of(response) == (400, "invalid_value", [where]), bad
            assert set((await one.stored()).values()) == {0}
        twice, headers = form([good, part("title", b"a"), part("title", b"a")])
        await refused(one, client, await client.post(PAPER, content=twice, headers=headers), 400, "invalid_value", ["/title"])
        both, headers = form([good, part("input", b'{"title": "a"}'), part("title", b"a")])
        await refused(one, client, await client.post(PAPER, content=both, headers=headers), 400, "invalid_value", ["/title"])
        number, headers = form([good, part("pages", b"many")])
        await refused(one, client, await client.post(PAPER, content=number, headers=headers), 400, "invalid_input", ["/pages"])
        listed, headers = form([good, part("input", b"[]")])
        await refused(one, client, await client.post(PAPER, content=listed, headers=headers), 400, "invalid_input", ["/input"])
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_a_form_cut_off_anywhere_is_refused(database: TestDatabase) -> None:
    whole, headers = form([part("title", b"a"), part("file", b"some content", file="a.txt")])
    async with api(database) as one, one.client() as client:
        end = len(whole) - len(b"--\r\n")
        for length in sorted({*range(0, end, 17), end, end + 1}):
            response = await client.post(PAPER, content=whole[:length], headers=headers)
            assert problem_of(response)[:2] == (400, "invalid_multipart"), length
        others = [
            (whole, {"Content-Type": "multipart/form-data"}),
            (whole, {"Content-Type": "multipart/form-data; boundary=" + "b" * 71}),
            (whole, {"Content-Type": "multipart/form-data; boundary=other"}),
            (b"--bound--\r\n"[:7], headers),
            (whole.replace(b"form-data; name", b"attachment; name"), headers),
            (whole.replace(b"Content-Disposition", b"Content Disposition"), headers),
            (whole.replace(b"\r\n\r\na\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\na\r\n"), headers),
        ]
        for body, given in others:
            assert problem_of(await client.post(PAPER, content=body, headers=given))[:2] == (400, "invalid_multipart"), given
        assert set((await one.stored()).values()) == {0}
        # The sender that stops in the middle gets nothing, and nothing is kept.
        head = f"POST {PAPER} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {one.key}\r\n"
        head += f"Content-Type: {headers['Content-Type']}\r\nContent-Length: {len(whole)}\r\n\r\n"
        request = head.encode() + whole[: end // 2]
        _, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(request)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert set((await one.stored()).values()) == {0}
        taken = await client.post(PAPER, content=whole + b"an epilogue", headers=headers)
        assert taken.status_code == 202


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_files_that_are_empty_too_large_too_many_or_not_wanted(database: TestDatabase) -> None:
    small = part("file", b"content", file="a.txt")
    async with api(database) as one, one.client() as client:
        empty, headers = form([part("file", b"", file="empty.txt")])
        await refused(one, client, await client.post(PAPER, content=empty, headers=headers), 400, "empty_document", ["/file"])
        none, headers = form([part("title", b"a")])
        await refused(one, client, await client.post(PAPER, content=none, headers=headers), 400, "invalid_input", ["/file"])
        typed, headers = form([part("file", b"text and no file")])
        await refused(one, client, await client.post(PAPER, content=typed, headers=headers), 400, "invalid_input", ["/file"])
        unwanted, headers = form([small, part("photo", b"a", file="p.jpg")])
        response = await client.post(PAPER, content=unwanted, headers=headers)
        await refused(one, client, response, 400, "invalid_input", ["/photo"])
        two, headers = form([small, part("file", b"b", file="b.txt")])
        await refused(one, client, await client.post(PAPER, content=two, headers=headers), 400, "invalid_input", ["/file"])
        claimed = {"file": {"document_id": "0197f2a8-0000-7000-8000-0000000000d0"}}
        await refused(one, client, await client.post(PAPER, json=claimed), 400, "invalid_input", ["/file/document_id"])

        # One of six files is too large: it is named.
        six = [small, *(part("more", b"x" * 1000, file=f"{n}.txt") for n in range(4))]
        six.insert(3, part("more", b"x" * (LIMITS.upload_bytes + 1), file="the large one.bin"))
        body, headers = form(six)
        response = await client.post(PAPER, content=body, headers=headers)
        await refused(one, client, response, 413, "document_too_large", ["/more"])
        assert "the large one.bin" in response.json()["detail"]
        exact, headers = form([part("file", b"x" * LIMITS.upload_bytes, file="exact.bin")])
        assert (await client.post(PAPER, content=exact, headers=headers)).status_code == 202
        before = await one.stored()
        many, headers = form([small, *(part("more", b"x" * 120_000, file=f"{n}.txt") for n in range(10))])
        assert problem_of(await client.post(PAPER, content=many, headers=headers))[:2] == (413, "body_too_large")
        parts, headers = form([small, *(part(f"p{n}", b"") for n in range(40))])
        assert problem_of(await client.post(PAPER, content=parts, headers=headers))[:2] == (413, "body_too_large")
        texts, headers = form([small, part("title", b"x" * (LIMITS.json_bytes + 1))])
        assert problem_of(await client.post(PAPER, content=texts, headers=headers)) == (413, "body_too_large", ["/title"])
        assert await one.stored() == before


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_media_types_actions_and_methods_that_are_not_there(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        types: list[dict[str, str]] = [
            {},
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Content-Type": "application/json; charset=iso-8859-1"},
            {"Content-Type": "application/json; charset=utf-16"},
            {"Content-Type": "application/jsonx"},
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        ]
        for given in types:
            response = await client.post(NOTE, content=b"{}", headers={"Idempotency-Key": "k", **given})
            await refused(one, client, response, 415, "unsupported_media_type")
        for name in ("no_such_action", "note_thing%00", "%F0%28%8C", "n" * 5000, "note_thing%2F"):
            response = await client.post(f"/api/actions/{name}/jobs", content=b"{}", headers=JSON)
            await refused(one, client, response, 404, "not_found")
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            response = await client.request(method, NOTE)
            await refused(one, client, response, 405, "method_not_allowed")
            assert response.headers["allow"] == "OPTIONS, POST"
        assert (await client.head(NOTE)).status_code == 405
        await refused(one, client, await client.get("/api/nothing/here"), 404, "not_found")
        await refused(one, client, await client.post(NOTE + "/", content=b"{}", headers=JSON), 404, "not_found")
        # What the face refuses itself is handed to the journal as well.
        assert one.refused.count("unsupported_media_type") == len(types)
        await still_serves(one, client)


@proves("G-NOTHING-STORED-ON-BAD-INPUT")
async def test_who_has_no_good_key_is_told_only_that(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(None) as nobody:
        bad = ["", "Bearer", "Basic abc", "Bearer dbx_wrong", f"Token {one.key}", "Bearer " + "x" * 9000]
        for given in (None, *bad):
            headers = JSON if given is None else {**JSON, "Authorization": given}
            response = await nobody.post(NOTE, content=b"{}", headers=headers)
            await refused(one, client, response, 401, "unauthenticated")
            assert response.headers["www-authenticate"].startswith("Bearer")
        twice = [("Authorization", f"Bearer {one.key}"), ("Authorization", f"Bearer {one.foreign_key}"), *JSON.items()]
        await refused(one, client, await nobody.post(NOTE, content=b"{}", headers=twice), 401, "unauthenticated")
        cookie = await nobody.post(NOTE, content=b"{}", headers={**JSON, "Cookie": f"deedbox_session={one.key}"})
        await refused(one, client, cookie, 401, "unauthenticated")
        # Every changing route but the login asks who is there, whatever it is sent.
        paths = (await nobody.get("/api/openapi.json")).json()["paths"]
        changing = [(path, verb) for path, item in paths.items() for verb in item if path != "/api/login"]
        assert len(changing) > 14
        for path, verb in changing:
            filled = re.sub(r"\{\w+_id\}", "0197f2a8-0000-7000-8000-0000000000d0", path).replace("{verb}", "abandon")
            response = await nobody.request(verb.upper(), filled)
            assert problem_of(response)[:2] == (401, "unauthenticated"), (verb, path)
        await still_serves(one, client)


async def test_the_description_names_every_action_with_its_schemas(database: TestDatabase) -> None:
    async with api(database) as one, one.client(None) as nobody:
        document = (await nobody.get("/api/openapi.json")).json()
        actions = [path for path in document["paths"] if path.startswith("/api/actions/")]
        assert actions == [
            f"/api/actions/{name}/jobs" for name in ("find_note", "note_slowly", "note_thing", "read_paper", "send_note")
        ]
        paper = document["paths"]["/api/actions/read_paper/jobs"]["post"]["requestBody"]["content"]
        assert list(paper) == ["application/json", "multipart/form-data"]
        fields = document["components"]["schemas"]["read_paper_form"]["properties"]
        assert fields["file"] == {"type": "string", "format": "binary"}
        assert fields["more"]["type"] == "array"
        text = json.dumps(document)
        for reference in {part.split('"', 1)[0] for part in text.split('"#/components/schemas/')[1:]}:
            assert reference in document["components"]["schemas"]
