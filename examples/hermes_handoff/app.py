"""Two ways of letting Hermes draft. It gets the words of a mail, never the recipient, a key or a connector.

`draft_reply` asks Hermes' API server, which speaks chat completions, as any other model endpoint. `hand_over_draft` calls its
webhook, signed, and is done; Hermes answers later by a call of its own, `file_draft`, with its own key and under the id of the
webhook, so that an answer that comes twice is one job. Whoever drafted, a person decides before a reply leaves.
"""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from deedbox import App, Context, Evidence, Grounds, Http, HttpCall, Rule, hold, rules

app = App(connectors=[Http()])

MailId = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$")]


class Mail(BaseModel):
    """Which of the desk's mails is to be answered."""

    mail_id: MailId


class Draft(BaseModel):
    """What a customer is to be told."""

    subject: str = Field(max_length=120)
    body: str = Field(max_length=4000)


class Filed(BaseModel):
    """A draft as Hermes hands it in."""

    mail_id: MailId
    subject: str = Field(max_length=120)
    body: str = Field(max_length=4000)


class Handed(BaseModel):
    """What was handed over."""

    mail_id: MailId


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="4h"))
async def draft_reply(ctx: Context, mail: Mail) -> Draft:
    """Draft a reply with Hermes' API server, for a person to approve."""
    found = await ctx.read("desk", f"/mails/{mail.mail_id}")

    async def ask() -> Draft:
        return await ctx.model(Draft, f"Answer this mail.\n\n{found['text']}", endpoint="hermes", prompt_version="reply-1")

    # Kept: a later attempt does not ask an agent for the same thing again.
    draft = await ctx.step("draft", ask, given={"mail": mail.mail_id})
    _reply(ctx, found, draft)
    return draft


# The words of a mail go to our own agent without a person: nothing reaches a customer by it.
TO_HERMES = rules(
    Rule(
        "words_to_hermes",
        "allow",
        "connector == 'http' && target == 'hermes_hook' && payload.path == '/hooks/draft' && effects == 1",
        Grounds(
            reversible=True,
            evidence=Evidence("200 hand-overs of March", "2026-04-02", 1.0),
            threshold=0.99,
            approved_by="head of support",
            valid_until="2027-03-31T00:00:00Z",
            per_day=2000,
        ),
    ),
)


@app.action(roles=["operator"], approvers=["manager"], policy=TO_HERMES)
async def hand_over_draft(ctx: Context, mail: Mail) -> Handed:
    """Hand a mail's words over to Hermes' webhook; its draft comes as a call of its own."""
    found = await ctx.read("desk", f"/mails/{mail.mail_id}")
    body = {"mail_id": mail.mail_id, "text": found["text"], "answer_with": "file_draft"}
    ctx.effect("http", target="hermes_hook", slot="handover", payload=HttpCall(path="/hooks/draft", body=body))
    return Handed(mail_id=mail.mail_id)


@app.action(roles=["drafter"], approvers=["manager"], policy=hold(expires="4h"))
async def file_draft(ctx: Context, filed: Filed) -> Draft:
    """Take a draft that Hermes has written; whom it goes to is looked up here, and a person decides."""
    found = await ctx.read("desk", f"/mails/{filed.mail_id}")
    draft = Draft(subject=filed.subject, body=filed.body)
    _reply(ctx, found, draft)
    return draft


def _reply(ctx: Context, mail: dict[str, Any], draft: Draft) -> None:
    body = {"to": mail["from"], "subject": draft.subject, "body": draft.body}
    ctx.effect("http", target="desk", slot="reply", payload=HttpCall(path="/replies", body=body))
