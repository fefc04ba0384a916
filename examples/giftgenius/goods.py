"""What the shop sells: made by the same rules each time, so that the shop and the purchase history know the same products."""

import random
from typing import Final, Literal, get_args

from pydantic import BaseModel, Field

Category = Literal[
    "books", "cooking", "garden", "games", "music", "outdoor", "crafts", "home", "sports", "travel", "tech", "wellness"
]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
PER_CATEGORY: Final = 20

_THINGS: Final[dict[Category, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "books": (("Field guide", ("nature", "reading")), ("Novel", ("reading", "stories")), ("Atlas", ("travel", "maps"))),
    "cooking": (("Chef's knife", ("cooking", "tools")), ("Bread form", ("baking",)), ("Spice set", ("cooking", "tea"))),
    "garden": (
        ("Hand trowel", ("gardening", "tools")),
        ("Seed box", ("gardening", "nature")),
        ("Bird feeder", ("nature", "birds")),
    ),
    "games": (("Board game", ("games", "family")), ("Jigsaw", ("puzzles", "quiet")), ("Card game", ("games", "travel"))),
    "music": (("Record", ("music", "vinyl")), ("Ukulele", ("music", "playing")), ("Headphones", ("music", "tech"))),
    "outdoor": (("Head torch", ("hiking", "camping")), ("Flask", ("hiking", "tea")), ("Hammock", ("camping", "quiet"))),
    "crafts": (("Yarn set", ("knitting", "quiet")), ("Water colours", ("painting",)), ("Carving set", ("wood", "tools"))),
    "home": (("Wool blanket", ("quiet", "home")), ("Table lamp", ("home", "reading")), ("Teapot", ("tea", "home"))),
    "sports": (("Yoga mat", ("yoga",)), ("Running belt", ("running",)), ("Climbing rope", ("climbing", "hiking"))),
    "travel": (
        ("Packing cubes", ("travel",)),
        ("Travel journal", ("travel", "writing")),
        ("Folding bag", ("travel", "hiking")),
    ),
    "tech": (
        ("Reading light", ("tech", "reading")),
        ("Weather station", ("tech", "nature")),
        ("Power bank", ("tech", "travel")),
    ),
    "wellness": (
        ("Bath set", ("quiet", "wellness")),
        ("Massage ball", ("running", "wellness")),
        ("Tea sampler", ("tea", "wellness")),
    ),
}
_MANNERS: Final = ("Classic", "Small", "Hand-made", "Large", "Nordic", "Everyday", "Light")
_SUBJECTS: Final = (
    "of the Alps",
    "of the North",
    "of the coast",
    "of the forest",
    "for the pocket",
    "in colour",
    "of small rivers",
)


class Product(BaseModel):
    """A product as the shop lists it; `price` is in euros."""

    sku: str = Field(max_length=20)
    title: str = Field(max_length=120)
    category: Category
    price: float = Field(gt=0, le=10_000)
    stars: float = Field(ge=1, le=5)
    reviews: int = Field(ge=0)
    tags: tuple[str, ...]


def stock() -> dict[str, Product]:
    """Every product by its number; the same at each call, in every process."""
    draw = random.Random(20_261_130)  # noqa: S311 -- a catalogue, not a secret
    found: dict[str, Product] = {}
    for category in CATEGORIES:
        things = _THINGS[category]
        for number in range(PER_CATEGORY):
            thing, tags = things[number % len(things)]
            which = number // len(things)
            title = f"{thing} {_SUBJECTS[which]}" if category == "books" else f"{_MANNERS[which]} {_lower(thing)}"
            sku = f"{category[:3].upper()}-{number + 1:03d}"
            price = round(draw.choice((9, 14, 19, 24, 29, 34, 39, 49, 59, 79)) + draw.choice((0.0, 0.5, 0.9, 0.95)), 2)
            stars = round(draw.uniform(3.4, 4.9), 1)
            found[sku] = Product(
                sku=sku,
                title=title,
                category=category,
                price=price,
                stars=stars,
                reviews=draw.randrange(4, 640),
                tags=tags,
            )
    return found


def _lower(thing: str) -> str:
    return thing[0].lower() + thing[1:]
