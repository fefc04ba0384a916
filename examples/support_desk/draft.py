"""What a draft is: the part that a drafter (rules or a model) fills in, and the part that only code establishes."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Category = Literal["delivery", "billing", "defect", "other"]
Urgency = Literal["low", "normal", "high"]
Language = Literal["en", "de"]

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"


class Label(BaseModel):
    """A category with the share of the evidence that speaks for it: 0 to 1, all labels of a draft together at most 1.

    A share is not a probability; with a model it is the model's own word and no rule may allow anything because of it.
    """

    model_config = ConfigDict(extra="forbid")
    label: Category
    score: float = Field(ge=0, le=1, allow_inf_nan=False)


class Fact(BaseModel):
    """Something the document says, word for word, and where in it."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["sender", "sender_name", "order", "invoice", "shipment", "amount"]
    value: str = Field(max_length=320)
    source: str = Field(max_length=200)


class Reply(BaseModel):
    """The answer to a customer and the reading of the case behind it: what a model is asked for."""

    model_config = ConfigDict(extra="forbid")
    category: Category
    urgency: Urgency
    language: Language
    subject: str = Field(min_length=1, max_length=200, pattern=NO_CONTROL)
    body: str = Field(min_length=1, max_length=6000)
    labels: list[Label] = Field(min_length=1, max_length=4)


class Draft(Reply):
    """A reply with the facts that code found in the document, and who drafted it; `note` says so in a sentence."""

    facts: list[Fact] = Field(max_length=20)
    drafted_by: Literal["rules", "model"]
    note: str = Field(max_length=2000)
