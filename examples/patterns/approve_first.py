"""Approve before act: nothing leaves until a person has seen exactly what leaves."""

from pydantic import BaseModel, Field

from deedbox import App, Context, Http, HttpCall, hold

app = App(connectors=[Http()])


class Complaint(BaseModel):
    """What a customer wants back."""

    customer: str = Field(max_length=40)
    amount: int = Field(ge=1, le=100_000)


class Refund(BaseModel):
    """What was drafted."""

    amount: int


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="4h"), kind="money")
async def refund_customer(ctx: Context, complaint: Complaint) -> Refund:
    """Refund a customer."""
    call = HttpCall(path="/refunds", body={"customer": complaint.customer, "amount": complaint.amount})
    ctx.effect("http", target="crm", slot="refund", payload=call)
    return Refund(amount=complaint.amount)


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="4h"), hold_input=True)
async def close_account(ctx: Context, complaint: Complaint) -> Refund:
    """Close a customer's account: already the arguments are approved, before anything is looked up or drafted."""
    call = HttpCall(method="PATCH", path=f"/customers/{complaint.customer}", body={"closed": True})
    ctx.effect("http", target="crm", slot="close", payload=call, kind="access")
    return Refund(amount=complaint.amount)
