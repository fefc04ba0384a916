"""Which gifts fit, and why: plain arithmetic whose parts are the reasons."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from examples.giftgenius.goods import CATEGORIES, Category, Product
from examples.giftgenius.taste import Taste

Word = Annotated[str, Field(min_length=1, max_length=40)]
SHELVES: Final = 5
"""How many categories are looked through."""
SHORTLIST: Final = 12
_RELATED: Final[dict[Category, tuple[str, ...]]] = {
    "books": ("reading", "stories", "nature", "maps"),
    "cooking": ("cooking", "baking", "tea"),
    "garden": ("gardening", "nature", "birds"),
    "games": ("games", "puzzles", "family"),
    "music": ("music", "vinyl", "playing"),
    "outdoor": ("hiking", "camping"),
    "crafts": ("knitting", "painting", "wood"),
    "home": ("home", "quiet", "tea", "reading"),
    "sports": ("yoga", "running", "climbing"),
    "travel": ("travel", "writing", "maps"),
    "tech": ("tech",),
    "wellness": ("wellness", "quiet", "tea"),
}


class Recipient(BaseModel):
    """Who gets the gift; interests and dislikes are single words, such as `hiking` or `tea`."""

    model_config = ConfigDict(extra="forbid")
    relation: str = Field(min_length=1, max_length=60, description="for whom: sister, colleague, godson")
    age: int | None = Field(default=None, ge=0, le=120)
    interests: list[Word] = Field(default_factory=list, max_length=8)
    dislikes: list[Word] = Field(default_factory=list, max_length=8)


class Offer(BaseModel):
    """What the shop says of a product today; `price` in euros, `days` until it arrives."""

    sku: str = Field(max_length=20)
    price: float = Field(gt=0)
    in_stock: bool
    days: int = Field(ge=0)


class Idea(BaseModel):
    """One gift, with the reason why it is on the list."""

    title: str = Field(max_length=120)
    price: float
    currency: Literal["EUR"] = "EUR"
    reason: str = Field(max_length=400)
    category: Category
    stars: float
    arrives_in_days: int | None = None
    sku: str = Field(max_length=20)


def shelves_for(recipient: Recipient, taste: Taste, kind: Category | None) -> list[Category]:
    """The categories to look through, the most promising first; with a `kind`, that one alone."""
    if kind is not None:
        return [kind]
    wanted = _words(recipient.interests)
    most = max(taste.bought.values(), default=1)

    def promise(category: Category) -> float:
        shared = wanted.intersection(_RELATED[category])
        return 2.0 * len(shared) + taste.bought.get(category, 0) / most

    return sorted(CATEGORIES, key=lambda category: (-promise(category), category))[:SHELVES]


def first_ideas(
    products: Iterable[Product], recipient: Recipient, taste: Taste, budget: float, leave_out: Sequence[str]
) -> list[Idea]:
    """The best of what was found, at the listed prices; at most twelve, the best first, and no two of one sort."""
    out, dislikes = {*leave_out, *taste.owned}, _words(recipient.dislikes)
    scored = [
        (points, product, reasons)
        for product in products
        if product.sku not in out and product.price <= budget and not dislikes.intersection(product.tags)
        for points, reasons in [_judge(product, recipient, taste, budget)]
    ]
    scored.sort(key=lambda item: (-item[0], item[1].sku))
    ideas: dict[tuple[str, tuple[str, ...]], Idea] = {}
    for _, product, reasons in scored:
        ideas.setdefault((product.category, product.tags), _idea(product, reasons))
    return list(ideas.values())[:SHORTLIST]


def final_ideas(ideas: Sequence[Idea], offers: Mapping[str, Offer], budget: float, count: int) -> list[Idea]:
    """The ideas that can be had within the budget today, with today's price and what speaks for it."""
    kept: list[Idea] = []
    for idea in ideas:
        offer = offers.get(idea.sku)
        if offer is None or not offer.in_stock or offer.price > budget:
            continue
        more = [f"today {idea.price - offer.price:.2f} {idea.currency} cheaper"] if offer.price < idea.price else []
        left = budget - offer.price
        more.append("uses the whole budget" if left < 1 else f"leaves {left:.2f} {idea.currency} of the budget")
        reason = "; ".join([idea.reason.rstrip("."), *more]) + "."
        kept.append(idea.model_copy(update={"price": offer.price, "reason": reason, "arrives_in_days": offer.days}))
    return kept[:count]


def _judge(product: Product, recipient: Recipient, taste: Taste, budget: float) -> tuple[float, list[str]]:
    shared = [tag for tag in product.tags if tag in _words(recipient.interests)]
    most = max(taste.bought.values(), default=1)
    bought = taste.bought.get(product.category, 0)
    points = 3.0 * len(shared) + 2.0 * bought / most + product.stars + min(product.price / budget, 1.0)
    reasons = [f"fits {' and '.join(shared)}"] if shared else []
    if bought:
        reasons.append(f"{product.category} was bought {bought} times before, but never this one")
    reasons.append(f"{product.stars:.1f} stars from {product.reviews} reviews")
    return points, reasons


def _idea(product: Product, reasons: Sequence[str]) -> Idea:
    said = "; ".join(reasons)
    return Idea(
        title=product.title,
        price=product.price,
        reason=f"{said[0].upper()}{said[1:]}.",
        category=product.category,
        stars=product.stars,
        sku=product.sku,
    )


def _words(given: Iterable[str]) -> set[str]:
    return {word.strip().lower() for word in given}
