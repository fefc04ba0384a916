"""The OpenAPI document: one path per action with its schemas, and the routes beside them."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from pydantic.json_schema import models_json_schema

from deedbox.extend.action import Action
from deedbox.http import callbacks
from deedbox.http.alerts import CloseBody
from deedbox.http.approvals import CommentBody, DelegateBody, EditBody, HandOverBody, ManyBody, SnoozeBody
from deedbox.http.audit import ErasureBody
from deedbox.http.browsers import STATUS_TOKEN
from deedbox.http.callbacks import EnableBody, ReplayBody
from deedbox.http.lanes import ActionLimitBody, LaneBody
from deedbox.http.openapi_schemas import SCHEMAS
from deedbox.http.openapi_tools import tool_paths, tool_schemas
from deedbox.http.operators import DecisionBody, EffectBody, LoginBody, SwitchBody
from deedbox.http.own import MintBody
from deedbox.http.rounds import AgainBody, ReplacementBody
from deedbox.http.targets import TargetBody
from deedbox.model.errors import CODES
from deedbox.operate.cards import SHOWS

_REF = "#/components/schemas/{model}"
_OURS = (
    ActionLimitBody,
    AgainBody,
    CloseBody,
    CommentBody,
    DecisionBody,
    DelegateBody,
    EditBody,
    EffectBody,
    HandOverBody,
    LaneBody,
    LoginBody,
    ManyBody,
    MintBody,
    EnableBody,
    ErasureBody,
    ReplacementBody,
    ReplayBody,
    SnoozeBody,
    SwitchBody,
    TargetBody,
)


def document(
    actions: Iterable[Action],
    *,
    version: str,
    base_url: str,
    login: bool,
    own: bool = False,
    auditing: bool = False,
    tools: bool = False,
) -> dict[str, Any]:
    """The document for these actions."""
    actions = sorted(actions, key=lambda action: action.name)
    inputs = [(action.input_model, "validation") for action in actions]
    outputs = [(action.output_model, "serialization") for action in actions]
    bodies = [(model, "validation") for model in _OURS]
    refs: Any
    refs, found = models_json_schema([*inputs, *outputs, *bodies], ref_template=_REF)  # pyright: ignore[reportArgumentType]
    schemas: dict[str, Any] = {**found.get("$defs", {}), **SCHEMAS}
    paths: dict[str, Any] = {}
    for action in actions:
        given = refs[action.input_model, "validation"]
        shown = refs[action.output_model, "serialization"]
        paths[f"/api/actions/{action.name}/jobs"] = {"post": _accept(action, given, shown, schemas)}
    bodies = {model.__name__: refs[model, "validation"] for model in _OURS}
    paths |= _paths(bodies, login=login) | (_own_paths(bodies) if own else {})
    if auditing:
        paths |= audit_paths(bodies["ErasureBody"])
    if tools:
        paths |= tool_paths(actions, _problems("400", "401", "403", "404", "500", "503"))
        schemas |= tool_schemas()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Deedbox", "version": version},
        "servers": [{"url": base_url}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "status_token": {"type": "apiKey", "in": "header", "name": STATUS_TOKEN},
            },
        },
    }


def _accept(action: Action, given: dict[str, Any], shown: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    needs_key = action.key_rule == "require"
    return {
        "operationId": action.name,
        "summary": action.title,
        "description": f"Version {action.version}. Roles: {', '.join(sorted(action.roles))}.",
        "parameters": [
            _header("Idempotency-Key", "Quoted or bare; one key is one job.", needed=needs_key, longest=255),
            _header("Prefer", "`wait=N` (at most 25) or `respond-async`."),
            _header("traceparent", "W3C Trace Context."),
            _header("Deedbox-Caller-Run", "The caller's own run id.", longest=200),
            _header("Deedbox-Run-At", "RFC 3339: not before this moment."),
            _header("Deedbox-Deadline", "RFC 3339: canceled where it has not ended by then."),
            _header("Deedbox-Callback", "The registered receiver that is told what becomes of it.", longest=63),
            _header("Deedbox-Priority", "0, the most urgent, to 1000."),
            _header("Deedbox-On-Behalf-Of", "The person for whom a service calls, where its key may.", longest=200),
        ],
        "requestBody": {"required": True, "content": _content(action, given, schemas)},
        "responses": {
            "200": _json("It ended within the wait.", {"allOf": [_ref("Job"), {"properties": {"result": shown}}]}),
            "202": _json("The job is stored, or was by an earlier delivery of the key.", _ref("Accepted")),
            **_problems("400", "401", "403", "404", "410", "413", "415", "422", "429", "500", "503"),
        },
    }


def _content(action: Action, given: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """JSON, where a document is named by its number, and a form where the action takes one, which sends it."""
    fields = action.document_fields
    content: dict[str, Any] = {"application/json": {"schema": given}}
    if fields:
        form = deepcopy(schemas[given["$ref"].rsplit("/", 1)[1]])
        file = {"type": "string", "format": "binary"}
        for name, many in fields.items():
            form["properties"][name] = {"type": "array", "items": file} if many else file
        schemas[f"{action.name}_form"] = form
        content["multipart/form-data"] = {"schema": _ref(f"{action.name}_form")}
    return content


def _paths(ours: dict[str, Any], *, login: bool) -> dict[str, Any]:
    job, effect, approval = _id("job_id"), _id("effect_id"), _id("approval_id")
    verb = {"name": "verb", "in": "path", "required": True, "schema": {"type": "string"}}
    wait = {"name": "wait", "in": "query", "schema": {"type": "number", "minimum": 0, "maximum": 25}}
    after = {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}}
    since = {
        "name": "since",
        "in": "query",
        "schema": {"type": "string"},
        "description": "A duration, `7d` where none is given.",
    }
    paths = {
        "/api/jobs": {"get": _read("list_jobs", "Jobs, newest first.")},
        "/api/jobs/{job_id}": {"get": _for_browsers(_read("show_job", "A job as it stands.", job, wait, schema=_ref("Job")))},
        "/api/jobs/{job_id}/events": {
            "get": _for_browsers(_read("follow_job", "Events: SSE, or pages of JSON.", job, after, wait))
        },
        "/api/jobs/{job_id}/cancel": {"post": _change("cancel_job", "Cancel a job.", job, schema=None)},
        "/api/jobs/{job_id}/retry": {
            "post": _change("take_up_job", "A new round of a parked job.", job, schema=ours["AgainBody"])
        },
        "/api/jobs/{job_id}/close": {
            "post": _change("close_job", "End a parked job as failed.", job, schema=ours["AgainBody"])
        },
        "/api/jobs/{job_id}/replacement": {
            "post": _change(
                "replace_job", "A correction of an ended job.", job, schema=ours["ReplacementBody"], stored=_ref("Accepted")
            )
        },
        "/api/documents/{document_id}": {"get": _read("read_document", "A stored upload.", _id("document_id"))},
        "/api/approvals": {"get": _read("list_approvals", "What waits for a person, and what leaves by itself.", _show())},
        "/api/approvals/{approval_id}/comments": {
            "post": _change("comment_approval", "Say something of it.", approval, schema=ours["CommentBody"])
        },
        "/api/approvals/{approval_id}/snooze": {
            "post": _change("snooze_approval", "Look away from it for a while.", approval, schema=ours["SnoozeBody"])
        },
        "/api/approvals/{approval_id}": {"get": _read("show_approval", "One approval with its digest.", approval)},
        "/api/approvals/{approval_id}/decision": {
            "post": _change("decide_approval", "Decide; for persons.", approval, schema=ours["DecisionBody"])
        },
        "/api/approvals/decisions": {
            "post": _change("decide_many", "Decide several alike; for persons.", schema=ours["ManyBody"])
        },
        "/api/approvals/{approval_id}/edit": {
            "post": _change("edit_approval", "Edit what waits, and hold it again.", approval, schema=ours["EditBody"])
        },
        "/api/approvals/{approval_id}/delegate": {
            "post": _change("delegate_approval", "Hand one's say in it on.", approval, schema=ours["DelegateBody"])
        },
        "/api/delegations": {
            "get": _read("list_delegations", "The says one handed on and was handed."),
            "post": _change("hand_over", "Hand one's say in all on until a moment.", schema=ours["HandOverBody"]),
        },
        "/api/delegations/{delegation_id}/withdraw": {
            "post": _change("withdraw_delegation", "Take a say back, or give it back.", _id("delegation_id"), schema=None)
        },
        "/api/switch": {
            "get": _read("show_switch", "Both halves of the switch."),
            "put": _change("turn_switch", "Turn the database's half.", schema=ours["SwitchBody"]),
        },
        "/api/switch/test": {"post": _change("test_switch", "Show that the switch blocks; nothing is sent.", schema=None)},
        "/api/lanes": {"get": _read("list_lanes", "Lanes, with what waits and runs in each.")},
        "/api/lanes/{lane_id}": {"put": _change("change_lane", "Pause or limit a lane.", _lane_id(), schema=ours["LaneBody"])},
        "/api/lanes/actions/{action}": {
            "put": _change("limit_action", "Limit an action over all lanes.", _action_name(), schema=ours["ActionLimitBody"])
        },
        "/api/policy": {"get": _read("list_policies", "The policy of each action, rule by rule.")},
        "/api/report": {"get": _read("show_report", "What actions have spent on models lately.", since)},
        "/api/policy/trial": {"get": _read("try_policies", "What was proposed lately under the rules of now.", since)},
        "/api/alerts": {"get": _read("list_alerts", "What a person should look at, newest first.")},
        "/api/alerts/{alert_id}/close": {
            "post": _change("close_alert", "Close an alert; for persons.", _id("alert_id"), schema=ours["CloseBody"])
        },
        "/api/callbacks": {"get": _read("list_callbacks", "What receivers were told.", *callbacks.parameters())},
        "/api/callbacks/replay": {
            "post": _change("replay_callbacks", "Tell it again, under the same ids.", schema=ours["ReplayBody"])
        },
        "/api/callbacks/disabled": {"get": _read("list_disabled_receivers", "Receivers that are told nothing more.")},
        "/api/callbacks/{target}/enable": {
            "post": _change("enable_receiver", "Tell a disabled receiver again.", _receiver(), schema=ours["EnableBody"])
        },
        "/api/targets": {
            "get": _read("list_targets", "Targets, with what holds each back."),
            "put": _change("change_target", "Pause, resume or limit a target.", schema=ours["TargetBody"]),
        },
        "/api/targets/egress": {
            "get": _read("judge_target", "Where a target leads to, and whether that may be dialled.", *_place())
        },
        "/api/effects": {"get": _read("list_effects", "The ledger of effects.")},
        "/api/effects/{effect_id}": {"get": _read("show_effect", "One effect with its evidence.", effect)},
        "/api/effects/{effect_id}/{verb}": {
            "post": _change("settle_effect", "Settle an effect.", effect, verb, schema=ours["EffectBody"])
        },
    }
    if login:
        opened = _change("log_in", "A session's bearer for a name and a password.", schema=ours["LoginBody"])
        paths["/api/login"] = {"post": {**opened, "security": []}}
    return paths


def _own_paths(ours: dict[str, Any]) -> dict[str, Any]:
    minted = _change("mint_key", "A personal key, shown this once.", schema=ours["MintBody"])
    minted["responses"]["201"] = minted["responses"].pop("200")
    return {
        "/api/me": {"get": _read("who_am_i", "Who the bearer is, and what it may do.")},
        "/api/keys": {"get": _read("list_own_keys", "One's own keys."), "post": minted},
        "/api/keys/{key_id}": {"delete": _change("end_own_key", "End a key of one's own.", _id("key_id"), schema=None)},
        "/api/sessions": {
            "get": _read("list_own_sessions", "One's own sessions."),
            "delete": _change("end_own_sessions", "Log out everywhere.", schema=None),
        },
        "/api/sessions/{session_id}": {
            "delete": _change("end_own_session", "End a session of one's own.", _id("session_id"), schema=None)
        },
    }


def _read(name: str, summary: str, *parameters: dict[str, Any], schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": _json(summary, schema or {}), **_problems("400", "401", "403", "404", "500", "503")},
    }


def _change(
    name: str,
    summary: str,
    *parameters: dict[str, Any],
    schema: dict[str, Any] | None,
    stored: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`stored` is the answer of a call that makes a job."""
    found = _read(name, summary, *parameters)
    found["responses"] |= _problems("409", "413", "415")
    if stored is not None:
        del found["responses"]["200"]
        found["responses"] |= {"202": _json("The job is stored.", stored), **_problems("410", "422", "429")}
    if schema is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _for_browsers(operation: dict[str, Any]) -> dict[str, Any]:
    """The same, also for the status token of that very job."""
    return {**operation, "security": [{"key": []}, {"status_token": []}]}


def audit_paths(erasure: dict[str, Any]) -> dict[str, Any]:
    """The routes of the audit."""
    since, until = _query("since", "RFC 3339: from this moment on."), _query("until", "RFC 3339: before this moment.")
    filters = [_query(name, f"Only this {name}.") for name in ("actor", "verb", "subject")]
    paging = [_query(name, "A whole number.", kind="integer") for name in ("before", "limit")]
    kept, form = _query("head", "One that was kept, NUMBER:HASH."), _query("format", "`ndjson` or `csv`.")
    asked = (_query("action", "The action.", needed=True), _query("key", "The key of a call.", needed=True))
    meant = (
        _query("question", "`request`, `sent`, `approved`, `drafted`.", needed=True),
        _query("what", "An id.", needed=True),
    )
    return {
        "/api/audit": {"get": _read("list_audit", "Entries of the audit, newest first.", *filters, since, until, *paging)},
        "/api/audit/check": {"get": _read("check_audit", "Walk the chain of the audit.", kept)},
        "/api/audit/export": {"get": _read("export_audit", "The audit as lines, the head last.", since, until, form)},
        "/api/audit/key": {"get": _read("ask_key", "Was this key processed?", *asked)},
        "/api/audit/answers": {"get": _read("ask_audit", "Whose request, was it sent, who approved, which model.", *meant)},
        "/api/erasures": {"post": _change("erase_subject", "Erase the ended jobs about a person.", schema=erasure)},
    }


def _query(name: str, description: str, *, needed: bool = False, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "query", "required": needed, "description": description, "schema": {"type": kind}}


def _show() -> dict[str, Any]:
    asked = _query("show", "A part of what waits, or what one has decided.")
    return {**asked, "schema": {"type": "string", "enum": list(SHOWS)}}


def _place() -> tuple[dict[str, Any], ...]:
    return _query("connector", "Its connector.", needed=True), _query("target", "Its name.", needed=True)


def _lane_id() -> dict[str, Any]:
    return {"name": "lane_id", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}}


def _receiver() -> dict[str, Any]:
    return {"name": "target", "in": "path", "required": True, "schema": {"type": "string"}}


def _action_name() -> dict[str, Any]:
    return {"name": "action", "in": "path", "required": True, "schema": {"type": "string"}}


def _id(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}


def _header(name: str, description: str, *, needed: bool = False, longest: int | None = None) -> dict[str, Any]:
    schema = {"type": "string", **({"maxLength": longest} if longest else {})}
    return {"name": name, "in": "header", "required": needed, "description": description, "schema": schema}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=name)}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _problems(*statuses: str) -> dict[str, Any]:
    codes = {status: [name for name, code in CODES.items() if str(code.status) == status] for status in statuses}
    return {
        status: {
            "description": f"Codes: {', '.join(names)}.",
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        for status, names in codes.items()
    }
