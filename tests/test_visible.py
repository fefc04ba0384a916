"""Text of strangers on our pages: what a screen would hide or disguise is shown as such."""

import pytest

from deedbox.web.visible import safe_url, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain <b>", "plain &lt;b&gt;"),
        ("a\r\nb\tc", "a\nb\tc"),
        (
            "Zoë Łukasiewicz, 日本, \u0645\u0631\u062d\u0628\u0627, \u041f\u0440\u0438\u0432\u0435\u0442",
            "Zoë Łukasiewicz, 日本, \u0645\u0631\u062d\u0628\u0627, \u041f\u0440\u0438\u0432\u0435\u0442",
        ),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
    ],
)
def test_ordinary_text_of_any_language_is_left_alone(text: str, shown: str):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "character", ["\0", "\x1b", "\x7f", "\u061c", "\u200e", "\u2066", "\ufeff", "\u3164", "\u2028", "\U000e0041"]
)
def test_what_a_screen_would_hide_is_shown(character: str):
    shown = visible(f"a{character}b")
    assert character not in shown
    assert f"U+{ord(character):04X}" in shown


def test_a_host_with_foreign_letters_is_spelt_out():
    assert "really xn--80ak6aa92e.com" in visible("write to you@\u0430\u0440\u0440\u04cf\u0435.com now")
    assert "really" not in visible("write to you@apple.com now")
    assert "not a host name" in visible("https://ä..x\u00e4/ and https://" + "ä" * 80 + ".com/")


def test_only_web_addresses_become_links():
    assert safe_url("/documents/1") == "/documents/1"
    assert safe_url("https://crm.example/1") == "https://crm.example/1"
    for url in (
        "javascript:alert(1)",
        "//evil.example",
        "/\\evil.example",
        "data:text/html,x",
        "https://a@b.example",
        "http://[",
    ):
        assert safe_url(url) is None
