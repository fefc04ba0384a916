"""Messages to Slack channels, through `chat.postMessage`.

Slack has no idempotency key, so a message is `blind`. Every message carries the effect's id in its metadata; where settings
allow reading a channel's history, a look-up finds a message there. That it finds none proves nothing: people delete messages.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from deedbox.connectors.answers import SUCCESS, UnreadableError, read_json
from deedbox.connectors.chat import Chat, ask, refusal_of_status, unsendable
from deedbox.connectors.http import json_bytes
from deedbox.connectors.settings import ConnectorSettings
from deedbox.egress import Answer, EgressClient, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import Ambiguous, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient

if TYPE_CHECKING:
    from deedbox.connectors.chat_settings import SlackConfig

_CHANNEL = re.compile(r"[CDG][A-Z0-9]{4,20}")
_EVENT = "deedbox_effect"
_LONGEST = 4000
_CODE = re.compile(r"[a-z_]{1,60}")
# What Slack documents for chat.postMessage. What it may say besides is not guessed at: it is ambiguous.
_DENIED = frozenset(
    """
    access_denied account_inactive ekm_access_denied enterprise_is_restricted invalid_auth is_inactive
    missing_scope no_permission not_allowed_token_type not_authed org_login_required restricted_action
    restricted_action_non_threadable_channel restricted_action_read_only_channel restricted_action_thread_locked
    restricted_action_thread_only_channel token_expired token_revoked two_factor_setup_required
    """.split()  # noqa: SIM905 -- a table is read more easily without two hundred quotes
)
_REFUSED = frozenset(
    """
    as_user_not_supported cannot_reply_to_message channel_not_found deprecated_endpoint
    duplicate_channel_not_found duplicate_message_not_found invalid_arg_name invalid_arguments invalid_array_arg
    invalid_blocks invalid_blocks_format invalid_charset invalid_form_data invalid_metadata_format
    invalid_metadata_schema invalid_post_type is_archived markdown_text_conflict message_limit_exceeded
    messages_tab_disabled metadata_must_be_sent_from_app metadata_too_large method_deprecated missing_post_type
    msg_blocks_too_long msg_too_long no_text not_in_channel slack_connect_canvas_sharing_blocked
    slack_connect_file_link_sharing_blocked too_many_attachments too_many_contact_cards user_not_found
    """.split()  # noqa: SIM905 -- as above
)
_LATER = frozenset({"ratelimited", "rate_limited"})


class SlackMessage(BaseModel):
    """A message. The effect's target is the id of a channel; the text is shown as it is, without mentions, links or markup."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: Annotated[str, StringConstraints(min_length=1, max_length=_LONGEST), Field(title="Text")]
    thread: Annotated[str | None, Field(title="In the thread of", pattern=r"^[0-9]{1,12}\.[0-9]{1,9}$")] = None

    @field_validator("text")
    @classmethod
    def _sendable(cls, value: str) -> str:
        return unsendable(value)


class Slack(Chat["SlackConfig", SlackMessage]):
    """Writes to Slack channels with the bot's token from settings. Capability: blind."""

    payload_model: type[BaseModel] = SlackMessage
    unset: ClassVar[str] = "No Slack app is set"
    most: ClassVar[int] = _LONGEST

    def __init__(self, name: str = "slack") -> None:
        """`name` is what `ctx.effect` calls it."""
        super().__init__(name)

    def config_in(self, settings: ConnectorSettings) -> "SlackConfig | None":
        """The app."""
        return settings.slack

    def check_address(self, target: str) -> None:
        """Raise ValueError unless the target is the id of a channel."""
        if not _CHANNEL.fullmatch(target):
            raise ValueError("target: must be the id of a channel, such as C0123456789; a name can be given to another channel")

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Which channel gets a message of which length."""
        message = self.read(payload)
        where = f" in the thread {message.thread}" if message.thread else ""
        return f"Posts a message of {len(message.text)} characters to the Slack channel {target}{where}."

    async def post(self, config: "SlackConfig", client: EgressClient, order: EffectOrder, message: SlackMessage) -> Outcome:
        """Post once, within `order.deadline_s` seconds."""
        content: dict[str, Any] = {
            "channel": order.target,
            "text": escaped(message.text),
            # No mrkdwn, no names or addresses made into links, no previews fetched.
            "mrkdwn": False,
            "parse": "none",
            "link_names": False,
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": {"event_type": _EVENT, "event_payload": {"effect_id": order.effect_id}},
        }
        if message.thread is not None:
            content["thread_ts"] = message.thread
        answered = await ask(
            client,
            f"{config.base_url}/chat.postMessage",
            json_bytes(content),
            deadline_s=order.deadline_s,
            headers={"Authorization": f"Bearer {config.token.get_secret_value()}"},
        )
        return _outcome(answered) if isinstance(answered, Answer) else answered

    async def look_up(self, order: EffectOrder) -> LookUp:
        """Find the message in the last hundred of its channel, where settings allow it. Finding none proves nothing."""
        config, client = self._config, self._client
        if config is None or client is None or not config.history:
            return LookUp("still_unknown", evidence={"reason": "no_look_up"})
        query = urlencode({"channel": order.target, "include_all_metadata": "true", "limit": "100"})
        headers = {"Authorization": f"Bearer {config.token.get_secret_value()}"}
        try:
            url = f"{config.base_url}/conversations.history?{query}"
            answer = await client.request("GET", url, headers=headers, deadline_s=order.deadline_s)
            said = read_json(answer.body) if answer.status in SUCCESS else None
        except (EgressRefused, NotSent, MaybeSent) as error:
            return LookUp("still_unknown", evidence={"reason": error.code})
        except UnreadableError:
            return LookUp("still_unknown", evidence={"reason": "unreadable_answer"})
        stamps = _stamps(said, order.effect_id)
        if len(stamps) == 1:
            return LookUp("accepted", f"{order.target}/{stamps[0]}", {"ts": stamps[0]})
        return LookUp("still_unknown", evidence={"status": answer.status, "found": len(stamps)})


def escaped(text: str) -> str:
    """Text as Slack shows it unchanged: without these three there is no mention, no link and no date in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _outcome(answer: Answer) -> Outcome:
    of_status = refusal_of_status(answer, "slack")
    if of_status is not None:
        return of_status
    try:
        said: Any = read_json(answer.body)
    except UnreadableError:
        said = None
    match said:
        case {"ok": True, "channel": str() as channel, "ts": str() as stamp} if channel and stamp:
            return Receipt(f"{channel}/{stamp}", {"channel": channel, "ts": stamp})
        case {"ok": False, "error": str() as error} if _CODE.fullmatch(error):
            return _refusal(error, f"slack_{error}", f"Slack answered {error}.")
        case _:
            return Ambiguous("unreadable_receipt", "Slack accepted, but its receipt cannot be read.", "answered")


def _refusal(error: str, code: str, said: str) -> Outcome:
    if error in _LATER:
        return Transient("rate_limited", code, said, "answered")
    if error in _DENIED:
        return Refused("denied", code, said, "answered")
    if error in _REFUSED:
        return Refused("caller_error", code, said, "answered")
    # fatal_error and internal_error come, as Slack says, also after it has acted.
    return Ambiguous(code, said, "answered")


def _stamps(said: Any, effect_id: str) -> list[str]:
    """The times, which are the ids, of the messages that carry this effect's id."""
    if not isinstance(said, dict) or cast("dict[str, Any]", said).get("ok") is not True:
        return []
    found: list[str] = []
    messages = cast("dict[str, Any]", said).get("messages")
    for item in cast("list[Any]", messages) if isinstance(messages, list) else []:
        match item:
            case {
                "ts": str() as stamp,
                "metadata": {"event_type": "deedbox_effect", "event_payload": {"effect_id": str() as mine}},
            }:
                if mine == effect_id:
                    found.append(stamp)
            case _:
                pass
    return found
