"""What pages say first when something is refused."""

HEADINGS = {
    "approval_changed": "This changed after you opened it",
    "already_decided": "This has been decided already",
    "approval_expired": "The time to decide is over",
    "repeat_unconfirmed": "This would be done a second time",
    "permission_denied": "You may not decide this",
    "confirmation_required": "One thing more is needed",
    "session_required": "This is decided on its page",
    "policy_denied": "The policy denies this",
    "invalid_input": "Nothing was decided",
    "csrf_failed": "Nothing was done",
    "not_found": "There is nothing here",
    "illegal_move": "It is too late for that",
    "too_many_logins": "Too many tries",
    "login_refused": "You are not logged in",
}
"""What stands above a refusal on a page, by its code; each says another thing."""
