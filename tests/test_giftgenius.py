"""Gift genius for real: its processes, its shop that fails, its worker that is killed, and what its parts say of odd input."""

import csv
import io
from pathlib import Path

import pytest

from deedbox import App, Context, FollowUp, allow
from deedbox.extend.action import RegistrationError
from examples.giftgenius.app import Kept, Purchases, app
from examples.giftgenius.demo import run
from examples.giftgenius.goods import stock
from examples.giftgenius.make_history import ROWS, history
from examples.giftgenius.ranking import Offer, Recipient, final_ideas, first_ideas, shelves_for
from examples.giftgenius.taste import UnreadableHistoryError, read_history
from tests.database import TestDatabase
from tests.guarantees import proves

SISTER = Recipient(relation="sister", interests=["hiking", "tea"], dislikes=["tech"])


@pytest.mark.anyio
@proves("G-GIFTS")
async def test_the_demo_sees_all_that_it_promises(database: TestDatabase, tmp_path: Path) -> None:
    shown = await run(tmp_path, DEEDBOX_DATABASE_URL=database.owner_url)
    assert [(what, evidence) for what, seen, evidence in shown.rows if not seen] == []
    assert {what for what, _, _ in shown.rows} >= {
        "500 and 429 are retries that can be seen",
        "what was read is not read again",
        "another worker finishes it",
        "the handler has stopped",
    }


def test_the_history_is_the_same_each_time_and_says_what_cannot_be_read() -> None:
    content = history()
    assert content == history()
    rows = list(csv.reader(io.StringIO(content.decode())))
    taste = read_history(content)
    assert (taste.rows, taste.repeated) == (ROWS + 1, 1)
    assert len(rows) == taste.rows + 1
    assert taste.unreadable == sum(row[5] == "n/a" for row in rows) > 0
    assert taste.favourites(1) == ["outdoor"]
    assert set(taste.owned) < set(stock())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not a text in UTF-8"),
        (b"date,sku\n", "lacks the columns category, price_eur, quantity"),
        (b"date,sku,category,price_eur,quantity\nyesterday,A,books,1,1\n", "no row that can be read"),
        (b"", "lacks the columns"),
    ],
)
def test_what_is_no_history_is_told_in_a_sentence(content: bytes, said: str) -> None:
    with pytest.raises(UnreadableHistoryError, match=said):
        read_history(content)


def test_ideas_fit_and_are_neither_owned_nor_disliked_nor_too_dear() -> None:
    taste = read_history(history())
    shelves = shelves_for(SISTER, taste, None)
    products = [product for product in stock().values() if product.category in shelves]
    ideas = first_ideas(products, SISTER, taste, 40, ["OUT-014"])
    assert ideas
    for idea in ideas:
        assert idea.price <= 40
        assert idea.sku not in {*taste.owned, "OUT-014"}
        assert "tech" not in stock()[idea.sku].tags
        assert idea.reason.endswith(".")
    offers = {idea.sku: Offer(sku=idea.sku, price=idea.price, in_stock=True, days=2) for idea in ideas}
    sold_out, dearer = ideas[0].sku, ideas[1].sku
    offers[sold_out] = offers[sold_out].model_copy(update={"in_stock": False})
    offers[dearer] = offers[dearer].model_copy(update={"price": 41.0})
    kept = final_ideas(ideas, offers, 40, 3)
    assert [idea.sku for idea in kept] == [idea.sku for idea in ideas[2:5]]
    assert shelves_for(SISTER, taste, "music") == ["music"]


def test_the_example_offers_both_actions_to_agents_and_three_follow_ups() -> None:
    assert {name: action.offer.withheld for name, action in app.actions.items()} == {
        "add_purchase_history": None,
        "start_deep_analysis": None,
    }
    labels = [follow_up.label for follow_up in app.actions["start_deep_analysis"].follow_ups]
    assert labels == ["More ideas", "A narrower budget", "Another kind of gift"]


@pytest.mark.parametrize(
    ("label", "message"), [("", "x"), ("x", " "), ("x" * 41, "x"), ("x", "y" * 501), ("two\nlines", "x"), ("x", "a\u202eb")]
)
def test_a_follow_up_is_one_short_line_that_shows_all_it_says(label: str, message: str) -> None:
    with pytest.raises(ValueError, match="a follow-up's"):
        FollowUp(label, message)


def test_follow_ups_are_few_and_told_apart() -> None:
    async def add_things(ctx: Context, given: Purchases) -> Kept:
        raise NotImplementedError(ctx, given)

    for given in ([FollowUp("More", "x"), FollowUp("More", "y")], [FollowUp(f"Label {n}", "x") for n in range(7)]):
        with pytest.raises(RegistrationError, match="add_things: follow_ups"):
            App().action(roles=["operator"], policy=allow(), follow_ups=given)(add_things)
