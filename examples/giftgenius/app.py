"""Gift genius: `deedbox serve examples.giftgenius.app:app`, with the shop of examples.giftgenius.shop as the target `shop`.

`start_deep_analysis` takes a while, fails and goes on where it was, and tells of itself all along. It has no effects.
"""

import asyncio
from typing import Final
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from deedbox import ActionFailure, App, Context, Document, FollowUp, Retry, allow
from examples.giftgenius.goods import Category, Product
from examples.giftgenius.ranking import Idea, Offer, Recipient, Word, final_ideas, first_ideas, shelves_for
from examples.giftgenius.taste import Taste, UnreadableHistoryError, read_history

app = App()

EARLY: Final = 2
"""How many categories are enough for first ideas."""
DRAFT: Final = "First ideas, before prices and stock are checked."

MORE = FollowUp(
    "More ideas",
    "Please find more gift ideas: run the analysis again with the same recipient, budget and purchase history, and leave out"
    " the products that were on this list.",
)
NARROWER = FollowUp(
    "A narrower budget",
    "Please find gifts for a smaller budget: ask me for the amount, then run the analysis again with the same recipient and"
    " purchase history.",
)
ANOTHER_KIND = FollowUp(
    "Another kind of gift",
    "Please look for another kind of gift: ask me which kind, then run the analysis again with the same recipient, budget and"
    " purchase history.",
)


class Analysis(BaseModel):
    """What is looked for: for whom, for how much, and by what history. `leave_out` are products already seen."""

    model_config = ConfigDict(extra="forbid")
    recipient: Recipient
    budget_eur: float = Field(ge=5, le=1000, allow_inf_nan=False, description="the most that one gift may cost, in euros")
    purchases: Document = Field(description="the purchase history, a CSV that was uploaded before")
    kind: Category | None = Field(default=None, description="look at this kind of gift alone")
    leave_out: list[Word] = Field(default_factory=list, max_length=60, description="product numbers not to suggest")
    count: int = Field(default=6, ge=1, le=10, description="how many ideas at most")


class PurchasesRead(BaseModel):
    """What the history came to; `unreadable` and `repeated` rows were passed over."""

    rows: int
    unreadable_rows: int
    repeated_rows: int
    since: str = Field(max_length=10)
    until: str = Field(max_length=10)


class GiftList(BaseModel):
    """The gifts, best first, each with its reason; a draft of it has no offers checked yet."""

    summary: str = Field(max_length=400)
    ideas: list[Idea] = Field(max_length=12)
    purchases: PurchasesRead


class Kept(BaseModel):
    """A purchase history that was taken: later calls name it by its number."""

    document_id: str = Field(max_length=36)
    name: str = Field(max_length=255)
    purchases: PurchasesRead


class Purchases(BaseModel):
    """A purchase history as a CSV."""

    model_config = ConfigDict(extra="forbid")
    purchases: Document


class Ideas(BaseModel):
    """Ideas at the listed prices, as they are kept between attempts."""

    ideas: list[Idea] = Field(max_length=12)


class Shelf(BaseModel):
    """What the shop has in one category."""

    products: list[Product] = Field(max_length=200)


@app.action(roles=["operator"], policy=allow(), consequence="read", key="content", tool=True)
async def add_purchase_history(ctx: Context, given: Purchases) -> Kept:
    """Take in a purchase history.

    Says what is in it, and the number by which an analysis names it.
    """
    taste = await _taste(ctx, given.purchases)
    return Kept(document_id=str(given.purchases.document_id), name=given.purchases.name, purchases=_read(taste))


@app.action(
    roles=["operator"],
    policy=allow(),
    consequence="read",
    key="content",
    tool=True,
    tool_wait=0,
    retry=Retry(attempts=10, base="300ms", cap="5s"),
    follow_ups=[MORE, NARROWER, ANOTHER_KIND],
)
async def start_deep_analysis(ctx: Context, given: Analysis) -> GiftList:
    """Find gifts.

    By a purchase history, a profile of the recipient and a budget, each with its reason. Takes a while, and tells of itself.
    """
    taste = Taste.model_validate(
        await ctx.step("1 history", lambda: _taste(ctx, given.purchases), given=given.purchases.sha256)
    )
    shelves = shelves_for(given.recipient, taste, given.kind)
    total = 1 + len(shelves) + 1 + given.count + 1
    await ctx.progress(1, total, f"Step 1 of 4: read {taste.rows} purchases")

    products: list[Product] = []

    def ideas_now() -> list[Idea]:
        return first_ideas(products, given.recipient, taste, given.budget_eur, given.leave_out)

    async def draft(most: int) -> Ideas:
        """Show what there is. As a part of a step it is told once, however often the attempt begins again."""
        ideas = ideas_now()
        await ctx.partial(GiftList(summary=DRAFT, ideas=ideas[:most], purchases=_read(taste)))
        return Ideas(ideas=ideas)

    for number, category in enumerate(shelves, start=1):
        shelf = await ctx.step(f"2 shelf {category}", lambda category=category: _shelf(ctx, category), given=category)
        products += Shelf.model_validate(shelf).products
        await ctx.progress(1 + number, total, f"Step 2 of 4: looked through {category}, {number} of {len(shelves)} categories")
        if number == EARLY:
            await ctx.step("2 early ideas", lambda: draft(3), given=shelves[:EARLY])

    found = Ideas.model_validate(await ctx.step("3 first ideas", lambda: draft(given.count), given=shelves)).ideas
    await ctx.progress(2 + len(shelves), total, f"Step 3 of 4: {len(found)} ideas at the listed prices")

    offers: dict[str, Offer] = {}
    # More than are wanted, because some will be sold out.
    for number, idea in enumerate(found[: given.count + 2], start=1):
        offer = await ctx.step(f"4 offer {idea.sku}", lambda idea=idea: _offer(ctx, idea.sku), given=idea.sku)
        offers[idea.sku] = Offer.model_validate(offer)
        done = min(number, given.count)
        await ctx.progress(2 + len(shelves) + done, total, f"Step 4 of 4: checked the offer for {idea.title}")
    kept = final_ideas(found, offers, given.budget_eur, given.count)
    await ctx.progress(total, total, "Step 4 of 4: ranked the ideas")
    return GiftList(summary=_summary(given, kept), ideas=kept, purchases=_read(taste))


async def _taste(ctx: Context, document: Document) -> Taste:
    content = await ctx.document(document)
    try:
        return await asyncio.to_thread(read_history, content)
    except UnreadableHistoryError as error:
        raise ActionFailure("caller_error", "unreadable_history", str(error)) from error


async def _shelf(ctx: Context, category: Category) -> Shelf:
    return Shelf.model_validate(await ctx.read("shop", f"/products?category={quote(category)}"))


async def _offer(ctx: Context, sku: str) -> Offer:
    return Offer.model_validate(await ctx.read("shop", f"/offers/{quote(sku)}"))


def _read(taste: Taste) -> PurchasesRead:
    return PurchasesRead(
        rows=taste.rows,
        unreadable_rows=taste.unreadable,
        repeated_rows=taste.repeated,
        since=taste.since.isoformat(),
        until=taste.until.isoformat(),
    )


def _summary(given: Analysis, ideas: list[Idea]) -> str:
    whom = f"for your {given.recipient.relation}"
    if not ideas:
        return f"Nothing in the shop fits {whom} within {given.budget_eur:.2f} EUR; a larger budget or another kind may help."
    count = "One gift" if len(ideas) == 1 else f"{len(ideas)} gifts"
    return f"{count} {whom} within {given.budget_eur:.2f} EUR, the best first."
