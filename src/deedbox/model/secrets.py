"""What looks like a secret in a text: keys with prefixes of their own, private keys, tokens, payment cards. A seat belt.

Only what is known by its form is found; a password in a sentence is not. Looking costs a few microseconds where there is
nothing: a text without a long run of the characters that keys are made of, and without as many digits as a card has, is not
looked at twice. No finding ever holds what was found.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

Path = tuple[str | int, ...]

_HEX = "[0-9a-fA-F]"
_WORD = "[0-9A-Za-z_-]"
# What each begins with is its maker's own. A text that holds none of the words is not searched for the pattern; every
# repetition is bounded, so that no text makes the search slow.
_PREFIXED: tuple[tuple[str, str, str], ...] = (
    ("an AWS access key", "AKIA ASIA", r"(?:AKIA|ASIA)[0-9A-Z]{16}"),
    ("a Google API key", "AIza", rf"AIza{_WORD}{{35}}"),
    ("a Google client secret", "GOCSPX-", rf"GOCSPX-{_WORD}{{20,60}}"),
    ("a Google access token", "ya29.", rf"ya29\.{_WORD}{{20,300}}"),
    ("an Azure storage key", "AccountKey=", r"AccountKey=[0-9A-Za-z+/]{40,100}={0,2}"),
    ("an Azure access signature", "sig=", r"sig=[0-9A-Za-z%+/]{30,120}"),
    ("a GitHub token", "gho_ ghp_ ghr_ ghs_ ghu_", r"gh[oprsu]_[0-9A-Za-z]{30,255}"),
    ("a GitHub token", "github_pat_", r"github_pat_[0-9A-Za-z_]{40,255}"),
    ("a GitLab token", "glpat- glptt- gldt- glrt- glcbt-", rf"gl(?:pat|ptt|dt|rt|cbt)-{_WORD}{{20,100}}"),
    ("an Atlassian token", "ATATT3", rf"ATATT3{_WORD}{{30,300}}"),
    ("a Slack token", "xox", r"xox[abeoprs]-[0-9A-Za-z-]{10,255}"),
    ("a Slack app token", "xapp-", r"xapp-[0-9]-[0-9A-Za-z-]{10,255}"),
    ("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/[0-9A-Za-z/]{20,100}"),
    ("a Telegram bot token", ":AA", rf"[0-9]{{8,10}}:AA{_WORD}{{33}}"),
    ("a Stripe key", "k_live_ k_test_", r"[rs]k_(?:live|test)_[0-9A-Za-z]{16,255}"),
    ("a webhook secret", "whsec_", r"whsec_[0-9A-Za-z+/=]{20,120}"),
    ("a Square token", "sq0", rf"sq0(?:atp|csp)-{_WORD}{{22,60}}"),
    ("a Shopify token", "shpat_ shpca_ shppa_ shpss_", rf"shp(?:at|ca|pa|ss)_{_HEX}{{32}}"),
    ("a Twilio key", "SK", r"SK[0-9a-f]{32}"),
    ("a SendGrid key", "SG.", rf"SG\.{_WORD}{{16,64}}\.{_WORD}{{16,64}}"),
    ("a Mailgun key", "key-", r"key-[0-9a-f]{32}"),
    ("a Mailchimp key", "-us", r"[0-9a-f]{32}-us[0-9]{1,2}"),
    ("a key of a model provider", "sk-", rf"sk-(?=[A-Za-z_-]{{0,200}}[0-9]){_WORD}{{20,255}}"),
    ("a Hugging Face token", "hf_", r"hf_[0-9A-Za-z]{30,60}"),
    ("a Replicate token", "r8_", r"r8_[0-9A-Za-z]{30,60}"),
    ("an npm token", "npm_", r"npm_[0-9A-Za-z]{36}"),
    ("a PyPI token", "pypi-AgE", rf"pypi-AgE{_WORD}{{40,255}}"),
    ("a Docker token", "dckr_pat_", rf"dckr_pat_{_WORD}{{20,60}}"),
    ("a DigitalOcean token", "_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("a Databricks token", "dapi", r"dapi[0-9a-f]{32}"),
    ("a HashiCorp Vault token", "hvs. hvb.", rf"hv[bs]\.{_WORD}{{20,255}}"),
    ("a Grafana token", "glsa_ glc_", r"gl(?:sa|c)_[0-9A-Za-z+/=_]{30,255}"),
    ("a New Relic key", "NRAK-", r"NRAK-[0-9A-Z]{27}"),
    ("a Postman key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("a Linear key", "lin_api_", r"lin_api_[0-9A-Za-z]{32,60}"),
    ("a Notion token", "secret_ ntn_", r"(?:secret_|ntn_)[0-9A-Za-z]{40,60}"),
    ("an age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    ("a key of this Deedbox", "dbx_", rf"dbx_{_WORD}{{30,100}}"),
    ("a JSON Web Token", "eyJ", rf"eyJ{_WORD}{{8,2000}}\.eyJ{_WORD}{{8,4000}}\.{_WORD}{{16,1000}}"),
    ("a password in a URL", "://", r"://[^\s/:@\"']{1,100}:[^\s/@\"']{3,200}@"),
)
KINDS: tuple[str, ...] = (*dict.fromkeys(kind for kind, _, _ in _PREFIXED), "a private key", "a payment card's number")
"""What can be found, in words."""

_BY_WORD = tuple((word, kind, re.compile(pattern)) for kind, words, pattern in _PREFIXED for word in words.split())
_PRIVATE = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:.{0,20000}?-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?",
    re.DOTALL,
)
# One digit first: from that alone the search knows where it need not look.
_CARD = re.compile(r"[0-9][0-9]{3}(?:[0-9]{9,}|([ -])(?:[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}|[0-9]{6}\1[0-9]{4,5}))")
_BEFORE = frozenset("_#/.-")
_LEAST, _ID, _DASHES = 20, 36, 4
_RUN = b"k" * _LEAST
_PLAIN, _BY_FOUR, _BY_SIX = b"0" * 13, b"0000 0000 0000 0", b"0000 000000 0000"
# Every character that a key may hold becomes the same, so that a run of them is found by one look; digits likewise.
_KEY_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_TO_RUN = bytes.maketrans(_KEY_BYTES, b"k" * len(_KEY_BYTES))
_TO_WORDS = bytes(byte if byte in _KEY_BYTES else 32 for byte in range(256))
_TO_DIGITS = bytes.maketrans(b"0123456789-", b"0" * 10 + b" ")


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a secret stands and what it looks like; never the secret."""

    path: Path
    kind: str


def suspicious(text: str) -> bool:
    """Whether a text may hold a secret: no for almost everything, in a few microseconds for a short one.

    The text may be JSON, whose escapes change nothing that is looked for here.
    """
    raw = text.encode("utf-8", "surrogatepass")
    digits = raw.translate(_TO_DIGITS)
    if (_PLAIN in digits or _BY_FOUR in digits or _BY_SIX in digits) and next(_cards(text), None) is not None:
        return True
    if _RUN in raw.translate(_TO_RUN):
        words = [word for word in raw.translate(_TO_WORDS).split() if len(word) >= _LEAST]
        # Most long words are ids, which are groups of 8, 4, 4, 4 and 12.
        if any(len(word) != _ID or word.count(b"-") != _DASHES for word in words) and next(_keys(text), None) is not None:
            return True
    return b"-----BEGIN" in raw or (b"://" in raw and b"@" in raw and next(_keys(text), None) is not None)


def kind_of(text: str) -> str | None:
    """What a text holds that looks like a secret, in words; None for nothing."""
    if not suspicious(text):
        return None
    return next((kind for _, _, kind in _spans(text)), None)


def masked(text: str) -> str:
    """The text with everything that looks like a secret replaced by what it looked like."""
    if not suspicious(text):
        return text
    shown: list[str] = []
    at = 0
    for start, end, kind in sorted(_spans(text)):
        if start >= at:
            shown += [text[at:start], f"[{kind} was here]"]
            at = end
    return "".join([*shown, text[at:]])


def findings(value: Any, path: Path = ()) -> Iterator[Finding]:
    """Where in a JSON value something looks like a secret: in texts, in whole numbers, and in the names of members."""
    if isinstance(value, str):
        kind = kind_of(value)
        if kind is not None:
            yield Finding(path, kind)
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            kind = kind_of(name)
            where = (*path, masked(name))
            if kind is not None:
                yield Finding(where, kind)
            yield from findings(item, where)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            yield from findings(item, (*path, number))
    elif isinstance(value, int) and not isinstance(value, bool) and (kind := kind_of(str(value))) is not None:
        yield Finding(path, kind)


def masked_value(value: Any) -> Any:
    """A JSON value with every secret in it masked; what is clean stays the same object."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {masked(name): masked_value(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [masked_value(item) for item in cast("list[Any]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and kind_of(str(value)) is not None:
        return masked(str(value))
    return value


def masked_fields(value: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The value with secrets masked in these fields alone, each a dotted name."""
    shown = dict(value)
    for field in fields:
        name, _, rest = field.partition(".")
        item = shown.get(name)
        if item is None:
            continue
        shown[name] = _below(item, rest) if rest else masked_value(item)
    return shown


def _below(item: Any, rest: str) -> Any:
    if isinstance(item, dict):
        return masked_fields(cast("dict[str, Any]", item), [rest])
    if isinstance(item, list):
        return [_below(one, rest) for one in cast("list[Any]", item)]
    return item


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _PRIVATE.finditer(text):
        yield match.start(), match.end(), "a private key"
    yield from _keys(text)
    yield from _cards(text)


def _keys(text: str) -> Iterator[tuple[int, int, str]]:
    for word, kind, pattern in _BY_WORD:
        if word in text:
            for match in pattern.finditer(text):
                start = match.start()
                # In the middle of a word the same letters mean nothing; a password stands behind the name of its scheme.
                if not start or not text[start - 1].isalnum() or word == "://":
                    yield start, match.end(), kind


def _cards(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while (match := _CARD.search(text, at)) is not None:
        start, end = match.span()
        digits = match[0].replace(" ", "").replace("-", "")
        if _stands_alone(text, start, end) and len(digits) in _lengths(digits) and _luhn(digits):
            yield start, end, "a payment card's number"
            at = end
        else:
            # A number in groups may begin at the next of them.
            at = start + 4 if len(digits) != end - start else end


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a number is no part of a longer one, of a word, or of a reference such as `INV-…`, `#…` or a decimal."""
    if start and (text[start - 1].isalnum() or text[start - 1] in _BEFORE):
        return False
    after = text[end : end + 2]
    return not (after[:1].isalnum() or after[:1] == "_" or (after[:1] in {"-", "."} and after[1:].isdecimal()))


def _lengths(digits: str) -> Sequence[int]:  # noqa: PLR0911 -- one return per issuer
    two, four = int(digits[:2]), int(digits[:4])
    if digits[0] == "4":
        return (13, 16, 19)
    if 51 <= two <= 55 or 2221 <= four <= 2720:  # noqa: PLR2004 -- ranges of an issuer
        return (16,)
    if two in {34, 37}:
        return (15,)
    if two in {36, 38, 39} or 3000 <= int(digits[:4]) <= 3059:  # noqa: PLR2004 -- ranges of an issuer
        return (14, 16, 19)
    if four == 6011 or two in {64, 65}:  # noqa: PLR2004 -- ranges of an issuer
        return (16, 19)
    if two == 62 or 3528 <= four <= 3589:  # noqa: PLR2004 -- ranges of two issuers
        return (16, 17, 18, 19)
    return ()


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value  # noqa: PLR2004 -- the sum of its two digits
    return total % 10 == 0
