"""A small warehouse desk for agents: `deedbox serve examples.agents.desk:app`.

`find_order` answers at once. `pack_order` takes longer than an agent's toolkit waits, so its first answer is `pending`.
"""

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from deedbox import ActionFailure, App, Context, allow

app = App()
OrderId = Annotated[str, Field(pattern=r"^A-[0-9]{3}$", max_length=5, description="The order's number, such as A-100.")]
Line = Annotated[str, Field(max_length=100)]
ORDERS = {"A-100": "two blue mugs", "A-101": "a tea pot"}
STEPS = 5
STEP_S = 0.5


class Which(BaseModel):
    """Which order."""

    model_config = ConfigDict(extra="forbid")
    order_id: OrderId


class Order(BaseModel):
    """An order."""

    order_id: OrderId
    content: Line


class Packed(BaseModel):
    """A parcel."""

    order_id: OrderId
    parcel: Line


@app.action(roles=["operator", "viewer"], policy=allow(), tool=True, consequence="read")
async def find_order(_ctx: Context, which: Which) -> Order:
    """Find an order by its number."""
    return Order(order_id=which.order_id, content=_content(which.order_id))


@app.action(roles=["operator"], policy=allow(), tool=True)
async def pack_order(ctx: Context, which: Which) -> Packed:
    """Pack an order into a parcel, which takes a few seconds."""
    content = _content(which.order_id)
    for step in range(STEPS):
        await ctx.progress(step, STEPS, f"packing {content}")
        await asyncio.sleep(STEP_S)
    return Packed(order_id=which.order_id, parcel=f"parcel of {content}")


def _content(order_id: str) -> str:
    content = ORDERS.get(order_id)
    if content is None:
        raise ActionFailure("caller_error", "order_not_found", f"There is no order {order_id}.")
    return content
