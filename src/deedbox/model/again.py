"""Running again: the three rules, the same at every door, and what is possible instead of what is refused."""

RULES = (
    "Only a parked job or one whose worker was lost is taken up again, under the same key.",
    "A job that waits for a person, is being sent or has ended never starts again: it answers with its state.",
    "A deliberate correction is a new job with a key of its own, linked to this one, with a reason and a fresh approval.",
)

_INSTEAD = {
    "queued": "It will run by itself; it can be canceled.",
    "running": "It is running; it can be told to stop, and ends by itself otherwise.",
    "awaiting_human": "It waits for a person: decide its approval, or cancel it.",
    "dispatching": "What was approved is on its way: settle its effects, or cancel it while all of them still wait.",
    "failed_retryable": "It is parked: it can be taken up under the same key, or closed.",
    "completed": "It is done: a correction is a replacement, under a key of its own.",
    "failed_terminal": "It has ended: a correction is a replacement, under a key of its own.",
    "canceled": "It has ended: what is still wanted is a replacement, under a key of its own.",
}


def instead(state: str) -> str:
    """What is possible with a job in this state, in a sentence."""
    return _INSTEAD.get(state, "Nothing can be done about it any more.")
