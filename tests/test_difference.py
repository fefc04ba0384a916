"""An edit is shown word by word."""

from hypothesis import given
from hypothesis import strategies as st

from deedbox.web.difference import MOST_WORDS, differences

TEXT = st.text(alphabet="ab \n<", max_size=60)


@given(TEXT, TEXT)
def test_the_pieces_give_both_texts_again(before: str, after: str):
    pieces = list(differences(before, after))
    assert "".join(text for kind, text in pieces if kind != "new") == before
    assert "".join(text for kind, text in pieces if kind != "gone") == after


def test_one_word_that_changed_is_all_that_is_marked():
    found = list(differences("It comes by Thursday.\nBye", "It comes by Friday.\nBye"))
    assert found == [("same", "It comes by "), ("gone", "Thursday."), ("new", "Friday."), ("same", "\nBye")]


def test_a_very_long_text_is_shown_whole():
    long = "word " * MOST_WORDS
    assert [kind for kind, _ in differences(long, f"{long}more")] == ["gone", "new"]
