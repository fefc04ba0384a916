"""What is submitted, to Deedbox and to its peers alike: this module needs pydantic alone, so that every environment has it."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Line(BaseModel):
    """One line of an order."""

    article: Annotated[str, Field(min_length=1, max_length=40)]
    amount: Annotated[int, Field(ge=1, le=1000)]
    price: Annotated[float, Field(ge=0)]


class Note(BaseModel):
    """What the action takes: a number is enough, a whole order of about 1 KB is welcome."""

    number: int
    customer: Annotated[str, Field(max_length=80)] = ""
    language: Literal["en", "de", "fr"] = "en"
    lines: Annotated[list[Line], Field(max_length=50)] = Field(default_factory=list[Line])
    text: Annotated[str, Field(max_length=2000)] = ""


def order(number: str) -> str:
    """The JSON of an order of 1 KB, whose number is given as text so that it can be put in later."""
    line = '{"article":"bracket 40 mm, galvanised","amount":12,"price":3.45}'
    text = "Please deliver to the back entrance; the yard closes at four and the porter has the key to the gate. " * 5
    head = f'{{"number":{number},"customer":"Ödön Szabó & Töchter, Werkstatt Süd","language":"de","lines":['
    return head + ",".join([line] * 6) + f'],"text":"{text.strip()}"}}'
