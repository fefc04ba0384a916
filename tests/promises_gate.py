"""Promises of the gate and the outbox that people meet at their pages, and of the switch while things are under way."""

from tests.promise import Guarantee

GATE: tuple[Guarantee, ...] = (
    Guarantee(
        "G-OPERATOR-PAGES",
        "The pages of targets and of the switch work without scripts; each verb takes a session of somebody with the role, our"
        " own form, a reason, and a tick that it is meant.",
        "issue 4: switch",
    ),
    Guarantee(
        "G-REMARKS",
        "Who may read an approval that waits may say something of it, at every door; it is on the card, in the audit and an"
        " event without its words, and decides nothing.",
        "screens: approver",
    ),
    Guarantee(
        "G-SNOOZE",
        "A person looks away from an approval for itself alone and never past its deadline, and is not reminded meanwhile.",
        "screens: approver",
    ),
    Guarantee(
        "G-OWN-LISTS",
        "What a person may decide, what is for its groups, what lapses within the hour and what it has decided are lists"
        " at every door.",
        "screens: approver",
    ),
    Guarantee(
        "G-EGRESS-VERDICT",
        "Where a target leads to can be judged beforehand, at every door, as the dialler would judge it; nothing is dialled.",
        "safety: egress",
    ),
    Guarantee(
        "G-SWITCH-MEANWHILE",
        "When the switch goes off, what is queued or leased stays, what is on the wire lands and is counted until then, and a"
        " job that is taken up, approved or reported while it is off sends nothing.",
        "safety: switch",
    ),
)
