"""What forms of operators' verbs share: the tick that says a verb is meant, and what stands above a refusal."""

from collections.abc import Mapping

from deedbox.model.errors import CODES, DeedboxError
from deedbox.web.headings import HEADINGS


def require_sure(form: Mapping[str, str]) -> None:
    """Raise DeedboxError("confirmation_required") unless the form says that its verb is meant."""
    if form.get("sure") != "yes":
        raise DeedboxError("confirmation_required", "Tick that you mean it, then send the form again; nothing was changed.")


def notice_of(refused: DeedboxError | None) -> tuple[str, str] | None:
    """Heading and sentence of a refusal; None where there is none."""
    if refused is None:
        return None
    said = "Nothing was changed" if refused.code == "invalid_input" else HEADINGS.get(refused.code, CODES[refused.code].title)
    return said, refused.sentence
