"""Every verb that leaves an entry in the audit, with what it says: the one list, and no entry has a verb that is not on it.

Whatever a person, a program or the clock decides, does, looks up or changes has a verb here. What the road does by itself, such
as claiming, retrying and sending, is told by the events, attempts and receipts of its job.
"""

VERBS: dict[str, str] = {
    # Decisions
    "approve": "a person approved what an approval shows, or voted for it",
    "reject": "a person rejected it, with the reason",
    "expire": "the time of an approval ran out and nobody had decided",
    "edit": "a person changed what an approval shows; it is held again under another digest, and the old one is superseded",
    "delegate": "a person handed a say on, in one approval or in all until a moment",
    "withdraw_delegation": "a say that was handed on was taken or given back",
    "comment": "a person said something of an approval that waits, which decides nothing",
    "snooze": "a person looks away from an approval until a moment before its deadline, or looks at it again",
    "ask": "people who may decide were written to",
    "ask_further": "more of them were written to, who may decide since",
    "remind": "people who may decide were reminded",
    "escalate": "a further role may decide what has waited too long",
    # Jobs
    "cancel": "a job, or an effect that waited, was canceled",
    "take_up": "a parked job began a new round, by an operator or by its caller's repeated delivery",
    "close": "a parked job was ended as failed, by an operator or because nobody took it up within its retention",
    "replace": "a correction of an ended job was accepted as a job of its own",
    "refuse_call": "a call was refused and stored no job; with its code, within a budget, and what had no entry is counted",
    "erase": "the contents of a person's jobs were removed, with their keys and payload hashes",
    # Effects
    "look_up": "a provider was asked about an unknown effect, by a person or on the schedule; with its answer",
    "confirm": "a person said, with evidence, that an unknown effect was done",
    "disprove": "a person said that an unknown effect was not done; it is sent again",
    "disprove_asked": "the first of the two people who are needed said so; nothing was changed",
    "abandon": "an effect was given up",
    # The switch and what holds back
    "switch_on": "the switch, or a part of it, was turned on",
    "switch_off": "the switch, or a part of it, was turned off",
    "change_lane": "a lane was paused, let go on or limited",
    "limit_action": "an action was limited over all lanes",
    "pause_target": "nothing more is sent to a target",
    "resume_target": "a target may be sent to again",
    "limit_target": "the rate, the burst or the order of a target was changed",
    "switch_test": "it was shown that the switch holds; nothing was sent",
    "enable_callbacks": "a receiver that had answered 410 is told again",
    "replay_callbacks": "receivers are told again what they were told",
    "close_alert": "a person closed an alert, with the reason",
    # People and keys
    "login": "a person logged in",
    "login_failed": "a login failed; within a budget, and what had no entry is counted",
    "logout": "a session was ended by its person",
    "end_sessions": "all sessions of a person were ended",
    "add_user": "a person was added",
    "grant": "a person was given roles",
    "withdraw": "roles were taken from a person",
    "disable": "an account was disabled",
    "enable": "an account was enabled again",
    "add_key": "a key of a program was made",
    "revoke_key": "a key was revoked",
    "rotate_key": "a key was replaced; the old one lives on for the overlap",
    "add_form_key": "a public key of a form was made, for one action and its origins",
    "mint_key": "a person made a key of their own, which decides and dies within hours",
    "set_email": "it was said where a person is written to",
    "put_role": "a role of one's own was made or changed",
    "remove_role": "a role of one's own was removed",
    "add_tenant": "a tenant was made",
    "take_token": "an access token made a person known, or its groups changed the person's roles",
    "login_refused": "a login by an OpenID provider was refused; within a budget, and what had no entry is counted",
}
