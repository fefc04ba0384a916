"""What Deedbox promises, each promise bound to the tests that prove it.

A test says `@proves("G-…")`. A promise that no test proves fails the house's tests, and so does a test that names a promise
which is not here; `docs/guarantees.md` is rendered from both.
"""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A promise: its id (`G-…`), what is promised in one sentence, and the part of the design it comes from."""

    id: str
    promise: str
    source: str


class UnknownGuaranteeError(LookupError):
    """A test names a promise that is not in the manifest."""


GUARANTEES: tuple[Guarantee, ...] = (
    # Intake
    Guarantee("G-ACCEPT-ONCE", "Any number of parallel deliveries of one key make one job and one lease.", "store: accept"),
    Guarantee(
        "G-STORED-BEFORE-202", "A 202 leaves after the job, its document and its first event are committed.", "faces: HTTP"
    ),
    Guarantee(
        "G-REPLAY",
        "The same key with the same payload answers with the same job, on any process, after any restart.",
        "faces: HTTP",
    ),
    Guarantee(
        "G-KEY-BOUND", "The same key with another payload is refused with key_reused, and nothing starts.", "faces: HTTP"
    ),
    Guarantee(
        "G-KEY-KEPT",
        "A key stays bound whatever becomes of its job: an exception, a crash or time frees none before its retention.",
        "faults: keys and delivery",
    ),
    Guarantee(
        "G-KEY-ORDER",
        "A call's key is the header's, else the field's, else what its source calls it, else the action's rule decides.",
        "faces: keys",
    ),
    Guarantee(
        "G-NOTHING-STORED-ON-BAD-INPUT",
        "A refused call stores no job, binds no key, and names the field.",
        "issue 2: bad input",
    ),
    Guarantee("G-FOREIGN-404", "A job of somebody else answers exactly as one that does not exist.", "safety: who is asking"),
    Guarantee(
        "G-OPENAPI",
        "Whatever a call looks like, its answer is one that the API's document names for it, and never a server's error.",
        "issue 4: proof",
        # Who is asking
    ),
    Guarantee(
        "G-OIDC",
        "A provider's answer opens a session only when every check holds, once, in the browser that began it.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-OIDC-GROUPS",
        "A group that vanished takes its role at the next login; who was disabled here stays outside.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-PERMISSIONS",
        "Every route says which verb it needs, or why it is open, and asks for it; what a role may do is one table.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-FORM-KEY",
        "A form key submits its one action from its own pages within its rate; a status token shows its one job.",
        "faces: browsers",
    ),
    Guarantee(
        "G-PERSONAL-KEY",
        "A personal key is made in a session, lives eight hours at most, can do what takes a person, and nothing else.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-KEY-ROTATION",
        "A rotated key lives for the overlap and no longer; its successor may do the same and both are in the list.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-ON-BEHALF",
        "A service that names a person has what both hold and no more, decides nothing, and both names are kept.",
        "safety: who is asking",
    ),
    # Worker
    Guarantee(
        "G-TAKE-UP",
        "A parked job is taken up under the same key, by an operator or a repeated delivery after its wait, thrice at most.",
        "lifecycle: running again",
    ),
    Guarantee(
        "G-REPLACEMENT",
        "A correction is a job of its own with a key of its own, linked both ways; a key made from the old one is refused.",
        "lifecycle: running again",
    ),
    Guarantee(
        "G-NO-SILENT-REPEAT",
        "An effect that the replaced job has done, or may have done, is done again only where the approver names its slot.",
        "lifecycle: running again",
    ),
    Guarantee(
        "G-ONE-ENDING-EVENT",
        "Each round of a job ends with exactly one of job.completed, job.failed and job.canceled.",
        "lifecycle: events",
    ),
    Guarantee(
        "G-READY",
        "Readiness is a round trip through the queue by the statements of every job, and leaves nothing behind.",
        "faces: readyz",
    ),
    Guarantee(
        "G-CHILD-ONCE",
        "An effect that starts another action makes one job however often it is sent, with its parent and trace.",
        "issue 3: dependent jobs",
    ),
    Guarantee("G-PROGRESS-ONCE", "A later attempt repeats no step of progress that was reported.", "lifecycle: events"),
    Guarantee(
        "G-MANY-LISTENERS",
        "Hundreds of streams of one process share one listening connection, and none misses or repeats an event.",
        "issue 3: events",
    ),
    Guarantee("G-DEADLINE", "A job past its deadline is canceled, unless its effects have left.", "issue 3: lifecycle"),
    Guarantee("G-RUN-AT", "A job for later starts at its time and is in nobody's way before.", "issue 3: lifecycle"),
    Guarantee(
        "G-FAIR-SHARE",
        "Lanes are served in turn: a tenant with few jobs does not wait behind one with many.",
        "store: claim",
    ),
    Guarantee("G-LANE-LIMIT", "A lane's limit holds over all workers; leases that ran out do not count.", "store: claim"),
    Guarantee(
        "G-ACTION-LIMIT",
        "A limit of an action over all queues and tenants holds over all workers, whatever they do at the same moment.",
        "store: claim",
    ),
    Guarantee("G-LANE-PAUSE", "A paused lane starts nothing and loses nothing.", "store: claim"),
    Guarantee("G-FENCE", "An attempt that was replaced changes nothing, and its effects are not admitted.", "lifecycle: job"),
    Guarantee("G-KILL9", "A job whose worker is killed is finished by another, under the same job id.", "issue 2: worker"),
    Guarantee(
        "G-RESCUE",
        "An expired lease is taken over, counts as an attempt, and never more often than is allowed.",
        "lifecycle: rescue",
    ),
    Guarantee("G-HEARTBEAT", "A blocked event loop does not cost a lease: the beats come from a thread.", "faults: leases"),
    Guarantee(
        "G-SELF-FENCE",
        "A handler whose lease the database no longer confirms is stopped before anyone else may have the job.",
        "store: renew",
    ),
    Guarantee(
        "G-LEASE-CAP",
        "No heartbeat prolongs an attempt beyond its max_runtime, not even one that ignores that it is told to stop.",
        "lifecycle: renew",
    ),
    Guarantee(
        "G-SYNC",
        "A def handler runs in a thread; stopped, its outcome is refused and its slot stays taken until it returns.",
        "issue 3: leases",
    ),
    Guarantee(
        "G-ALERT",
        "What used up its attempts, ended of a bug or was taken over again and again opens one alert.",
        "safety: alerts",
    ),
    Guarantee("G-CANCEL", "A canceled job runs no further, and what it had planned is not sent.", "lifecycle: cancel"),
    Guarantee(
        "G-DRAIN-ENDS",
        "A process that was told to stop ends soon after its drain, also where a handler ignores it for ever; the job goes on.",
        "faults: leases",
    ),
    Guarantee("G-DRAIN", "On SIGTERM a worker claims nothing more and gives back what has not started.", "faults: leases"),
    Guarantee(
        "G-BACKOFF",
        "The class of a failure decides: the transient wait and run again, the permanent end at once.",
        "lifecycle: classes",
    ),
    Guarantee(
        "G-MATRIX",
        "What a failure of each class makes of a job and of an effect is one table, which an action may narrow or widen.",
        "lifecycle: classes",
    ),
    Guarantee(
        "G-RETRY-AFTER",
        "A provider's Retry-After, in seconds or as a date, is waited for, within the cap of the action.",
        "lifecycle: classes",
    ),
    Guarantee(
        "G-STEP-ONCE", "The result of a finished step is reused by later attempts; the step does not run again.", "store: steps"
    ),
    Guarantee(
        "G-ONE-OUTCOME", "A job ends once: it is in the queue or has a result, never both, never neither.", "lifecycle: job"
    ),
    # Model
    Guarantee(
        "G-MODEL-REPAIR",
        "A model's output is validated; it is repaired at most as often as set, then the job fails.",
        "lifecycle: classes",
    ),
    Guarantee(
        "G-NO-CREDENTIALS-IN-HANDLER", "Neither a handler nor the model behind it is handed a credential.", "issue 2: library"
    ),
    # Policy
    Guarantee(
        "G-POLICY-AT-START",
        "An empty or misspelt policy, an unknown field or role, or a rule without what it needs is refused at the start.",
        "safety: the gate",
    ),
    Guarantee(
        "G-RULES-FIRST",
        "Rules are asked in order, the first that applies decides, and the default is hold.",
        "safety: the gate",
    ),
    Guarantee(
        "G-RULE-FAILS-HOLDS",
        "A rule that cannot be evaluated, or answers neither true nor false, holds, whatever comes after it.",
        "safety: the gate",
    ),
    Guarantee(
        "G-JUDGEMENT-ONLY-HOLDS",
        "What a model judged may hold or deny, and is not there for a rule that lets something out.",
        "safety: the gate",
    ),
    Guarantee(
        "G-GROUNDS",
        "Outside of its evidence, agreement, validity, ceiling and cover a rule that lets something out holds.",
        "safety: the gate",
    ),
    Guarantee(
        "G-DAY-CEILING",
        "Of admissions at once only so many let something out as a rule has places left today.",
        "safety: the gate",
    ),
    Guarantee(
        "G-SAMPLE-DRAWN-ONCE",
        "Neither a retry nor a redraft draws a sample again, and nobody without the secret can foresee a draw.",
        "safety: the gate",
    ),
    Guarantee(
        "G-CANCEL-WINDOW",
        "A delayed effect leaves no earlier than its window has passed, and until then it is canceled or sent, never both.",
        "safety: the gate",
    ),
    Guarantee(
        "G-INPUT-HELD",
        "Where a person approves the arguments, nothing of the action runs before, and silence never approves.",
        "lifecycle: job",
    ),
    Guarantee(
        "G-AFTER",
        "An effect that waits for another leaves only once that one is completed, in whatever group.",
        "lifecycle: effect",
    ),
    # Gate
    Guarantee(
        "G-HOLD", "An external effect waits for a person unless the policy of its action says otherwise.", "safety: gate"
    ),
    Guarantee(
        "G-OUTBOX-ONLY-GATE",
        "No effect reaches the outbox except through the gate, under one approval or verdict.",
        "design: layers",
    ),
    Guarantee("G-DIGEST", "What is sent is byte for byte what was approved; a changed effect is not leased.", "store: digests"),
    Guarantee("G-GET-CHANGES-NOTHING", "Opening an approval's page decides nothing and uses nothing up.", "safety: approval"),
    Guarantee("G-CSRF", "A decision from another site, or without the form's token, changes nothing.", "safety: approval"),
    Guarantee(
        "G-PERSON-DECIDES",
        "Only a person who is logged in and holds the role decides; a service key never does.",
        "safety: approval",
    ),
    Guarantee(
        "G-ONE-DECISION",
        "Exactly one decision, time-out or cancellation of an approval wins; the others are told.",
        "lifecycle: approval",
    ),
    Guarantee(
        "G-GRAVE",
        "A grave effect is approved on the page alone, by a person who gave the password and typed what is at stake.",
        "safety: gate",
    ),
    Guarantee(
        "G-EVERY-DOOR",
        "Page, API, command line and the function itself decide by the same rules, whoever asks and with whatever key.",
        "safety: approval",
    ),
    Guarantee(
        "G-EDIT",
        "An edit is a new approval with a new digest under the policy again; what leaves is of the revision approved.",
        "lifecycle: approval",
    ),
    Guarantee(
        "G-EDITOR-APART",
        "Who edited something consequential or grave is never the only one who approves it.",
        "safety: gate",
    ),
    Guarantee(
        "G-DELEGATION",
        "A say that was handed on counts once, while its holder has it, and never towards whoever asked; both names stay.",
        "safety: approval",
    ),
    Guarantee(
        "G-MANY-ALONE",
        "Of approvals decided at once, each has its own digest, answer and audit entry; one refused holds up no other.",
        "screens: approver",
    ),
    Guarantee(
        "G-CANCEL-OR-SEND",
        "Of a cancel and a send at the same moment one happens: what was canceled is not sent, what left is not canceled.",
        "lifecycle: effect",
    ),
    Guarantee("G-STALE-TOLD", "Who decides too late is told who was first and when.", "faults: approvals"),
    Guarantee("G-ZONES", "A deadline is the same moment whatever time zone server and process have.", "faults: approvals"),
    Guarantee("G-SILENCE", "Silence never approves: an approval that runs out sends nothing.", "lifecycle: approval"),
    # Outbox
    Guarantee(
        "G-SWITCH-OFF",
        "Unless both halves of the switch are on, no act leaves, and what waits stays pending.",
        "safety: switch",
    ),
    Guarantee(
        "G-UNKNOWN-NOT-RESENT",
        "An effect that may have been accepted becomes unknown and is not sent again by itself.",
        "lifecycle: effect",
    ),
    Guarantee(
        "G-SILENT-SERVER",
        "Whoever waits for a database that has fallen silent is let go soon after the server's own time-out should have come.",
        "store",
    ),
    Guarantee(
        "G-SENDER-SUSPENDED",
        "A sender whose lease is over by the database's clock does not dial, however little time its own clock saw.",
        "store: dispatch",
    ),
    Guarantee(
        "G-DOUBTFUL",
        "What may have been accepted is sent again only while its native key lives, and never ends as if it had not left.",
        "lifecycle: effect",
    ),
    Guarantee(
        "G-TARGET-RATE",
        "All dispatchers together send to a target no more than its burst and its rate allow.",
        "issue 4: outbox",
    ),
    Guarantee(
        "G-TARGET-ORDER",
        "An ordered target gets one effect at a time, in the order of the outbox; one that is unknown blocks those behind it.",
        "issue 4: outbox",
    ),
    Guarantee(
        "G-BREAKER",
        "A target that fails in a row is left alone by every dispatcher, and then tried with one effect at a time.",
        "issue 4: outbox",
    ),
    Guarantee(
        "G-CAPABILITY",
        "What an end of a sending makes of an effect is one table of ends and of the target's capability.",
        "safety: connectors",
    ),
    Guarantee(
        "G-OWNED",
        "Every effect that has not ended is found by the query of whoever moves it on, whatever shape it is in.",
        "faults: keys and delivery",
    ),
    Guarantee(
        "G-LOOKUP-SCHEDULE",
        "What is unknown is looked up by one at a time, less and less often, until it is known or left to people.",
        "issue 4: reconciliation",
    ),
    Guarantee(
        "G-WAITS-SAID",
        "Whatever holds a pending effect back is named, with who and why.",
        "issue 4: outbox",
    ),
    Guarantee(
        "G-SWITCH-PARTS",
        "The switch narrows by tenant, action, connector and target at every door, and its test shows that each part blocks.",
        "safety: switch",
    ),
    Guarantee("G-SAME-KEY", "Every sending of one effect carries the same idempotency key.", "safety: connectors"),
    Guarantee(
        "G-LOOKUP",
        "An unknown effect is confirmed or disproved by a look-up or a person, with the evidence kept.",
        "lifecycle: effect",
    ),
    Guarantee(
        "G-OUTBOX-SURVIVES",
        "A dispatcher that stops after the 202 sends what was approved once it starts again.",
        "issue 2: shown by",
    ),
    Guarantee(
        "G-RECEIPT-KEPT",
        "A receipt whose commit failed or gave no answer is kept once, and its job ends once.",
        "store: dispatch",
    ),
    Guarantee(
        "G-EGRESS",
        "Outgoing calls follow no redirect and reach no private address that was not allowed by name.",
        "safety: egress",
    ),
    Guarantee(
        "G-EGRESS-FUZZ",
        "However an inner address is spelt, and whatever a resolver answers: what was not checked is not dialled.",
        "safety: egress",
    ),
    Guarantee("G-ONE-WAY-OUT", "Everything that opens a connection to others does so through egress.", "safety: egress"),
    # Connectors
    Guarantee(
        "G-CONFORMANCE",
        "Every built-in connector passes the conformance run, and one that tells less than the truth fails it.",
        "safety: connectors",
    ),
    Guarantee(
        "G-PROVEN",
        "A native key of an HTTP target counts only after a conformance run against it, with its day and who answers for it.",
        "safety: connectors",
    ),
    Guarantee(
        "G-UPSERT",
        "What is put under our own key is one thing however often it is sent, and can be asked for by that key.",
        "issue 4: connectors",
    ),
    Guarantee(
        "G-CALLBACK-ONCE",
        "A callback comes at least once, always under one id with the same bytes; a receiver that keeps ids is told once.",
        "safety: connectors",
    ),
    Guarantee(
        "G-CALLBACK",
        "What a receiver wants to hear of a job is told after it was committed, each event once; a failed one changes no job.",
        "safety: connectors",
    ),
    Guarantee(
        "G-CALLBACK-GONE",
        "A receiver that answers 410 is told nothing more until a person enables it, and what it missed can be told again.",
        "issue 4: connectors",
    ),
    Guarantee(
        "G-SIGNED",
        "A signature covers the very bytes that are sent; while secrets change, each is signed with.",
        "issue 4: connectors",
    ),
    Guarantee(
        "G-CHAT-PLAIN",
        "No text of a payload becomes a mention, a link or markup in a chat, and no token is told.",
        "issue 4: connectors",
    ),
    # Notices and alerts
    Guarantee(
        "G-NOTICE",
        "A notice goes out under the built-in verdict alone, is in no job's history, and is held by no switch of acts.",
        "lifecycle: effect",
    ),
    Guarantee(
        "G-LINK-MINTED",
        "A link's token is in no table: it is minted for each sending, its hash committed first, and a decision voids all.",
        "store: dispatch",
    ),
    Guarantee(
        "G-LINK-DECIDES-NOTHING",
        "No link in a mail decides anything by GET, HEAD, prefetch, script or unauthenticated POST, and the person still can.",
        "issue 4: links by mail",
    ),
    Guarantee(
        "G-ASKED",
        "Each living person who may decide and has an address is asked by mail, once, with no word of what is to be sent.",
        "issue 4: links by mail",
    ),
    Guarantee(
        "G-REMINDED-ONCE",
        "A reminder is sent once, however many notifiers look, and none once it is decided.",
        "issue 4: decisions",
    ),
    Guarantee(
        "G-ESCALATED",
        "What nobody decides in time may be decided by a further role as well, which is told once.",
        "issue 4: decisions",
    ),
    Guarantee(
        "G-SLOW-NOTIFIER",
        "However slow a notice is, decisions are not held up and approvals lapse at their own time.",
        "safety: approval",
    ),
    Guarantee(
        "G-ALERT-TOLD",
        "An open alert is told to its owners when it was opened and a bounded number of times after, acts held or not.",
        "safety: alerts",
    ),
    Guarantee(
        "G-ALERT-CLOSED",
        "Only a person closes an alert, with a reason that is kept; its owner is told no more.",
        "safety: alerts",
    ),
    # Asking, and the store
    Guarantee("G-SSE-RESUME", "An event stream resumed after its last id has no gap and no repeat.", "faces: HTTP"),
    Guarantee("G-ILLEGAL-MOVE", "The database refuses a move that the lifecycle does not name.", "store: tables"),
    Guarantee(
        "G-AUDIT-APPEND",
        "The audit cannot be changed or shortened by the application, and a broken link is found.",
        "safety: data",
    ),
    Guarantee(
        "G-AUDIT-HEAD",
        "A chain that was cut off, or written anew from some entry on, is found by a head that was exported before.",
        "safety: data",
    ),
    Guarantee(
        "G-AUDIT-EXPORT",
        "An export of the audit, also of a part of its time, is verified by itself; a line changed, moved or gone is found.",
        "issue 4: audit",
    ),
    Guarantee(
        "G-AUDIT-TENANT",
        "What one tenant's people did is not told to another's, who can still follow the chain over it.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-AUDIT-EVERY",
        "Every decision, verb, look-up, login and switch leaves an entry; a verb that is not listed leaves none and fails.",
        "issue 4: audit",
    ),
    Guarantee(
        "G-FOUR-QUESTIONS",
        "Was this key processed, was it sent, who approved it, which model drafted it: each answered from any id at hand.",
        "safety: data",
    ),
    Guarantee(
        "G-SECRET-REFUSED",
        "What looks like a secret in an input is refused with its pointer, or masked where the action says so, never echoed.",
        "safety: data",
    ),
    Guarantee(
        "G-SENSITIVE",
        "A sensitive field is in no event, log, error text, list or export; the approver's card shows it exactly.",
        "safety: data",
    ),
    Guarantee(
        "G-ERASED",
        "Erasing a person leaves sha256 of the keys, the skeletons and a whole chain; a delivery of the key gets 410 erased.",
        "safety: data",
    ),
    Guarantee(
        "G-AGAIN",
        "The three rules for running again hold at every door, and a refusal says the state and what is possible instead.",
        "lifecycle: running again",
    ),
    Guarantee(
        "G-AUDIT-WHO",
        "Logins, failed ones too, and changes of users and keys are in the audit; a flood of failures is counted, not written.",
        "safety: data",
    ),
    Guarantee(
        "G-PRUNED-CONTENTS",
        "Contents of ended jobs are in no table once their retention has passed; digests, decisions and receipts stay.",
        "issue 3: growth",
    ),
    Guarantee(
        "G-PRUNED-410",
        "A repeated delivery after pruning starts nothing and is told that the job has been removed.",
        "store: accept",
    ),
    Guarantee("G-KEYS-OUTLIVE", "The key of a job that proposed effects never expires.", "faces: keys"),
    Guarantee(
        "G-PARTITION-AHEAD",
        "The partitions of the months ahead are made while the road is in use, and nobody waits for them.",
        "store: growth",
    ),
    Guarantee(
        "G-PARTITION-DROP",
        "A month is dropped only when its retention has passed and nothing in it is open; the database refuses otherwise.",
        "store: tables",
    ),
    Guarantee(
        "G-QUEUE-OR-RESULT",
        "A job that is in the queue and has ended, or neither, is found by sweep and shown by doctor.",
        "store: tables",
    ),
    Guarantee(
        "G-PLANS",
        "The statements that run all the time read no big table from end to end, also where they were planned on empty tables.",
        "store: growth",
    ),
    Guarantee(
        "G-SCHEMA-MIGRATED",
        "A database of any older version, with its data, becomes by migration what a new one is.",
        "issue 3: schema",
    ),
    Guarantee(
        "G-MIGRATE-UNDER-LOAD",
        "A migration under load loses nothing that was stored, and one that fails leaves everything as it was.",
        "issue 3: schema",
    ),
    Guarantee("G-SCHEMA-VERSION", "A build refuses a schema that is older or newer than its own.", "issue 3: schema"),
    Guarantee("G-SCHEMA-FRESH", "The schema file equals the schema that the migrations make.", "design: habits"),
    Guarantee(
        "G-ENGINES",
        "The road is the same on PostgreSQL 15 as on 18, and through a pooler in transaction mode.",
        "issue 3: poolers and other engines",
    ),
    Guarantee(
        "G-EMBEDDED-PRIVATE",
        "The embedded PostgreSQL listens on no network and lets in nobody without its secret.",
        "store: embedded",
    ),
    Guarantee(
        "G-CHAOS",
        "Whatever is killed, frozen, restarted or cut: no 202 is lost, no job ends twice, no effect is done twice unasked.",
        "issue 3: chaos",
    ),
    Guarantee(
        "G-FAILOVER",
        "With synchronous replication, killing the leader loses no 202 and doubles nothing, and readiness says so meanwhile.",
        "issue 3: fail-over",
    ),
)

IDS = frozenset(guarantee.id for guarantee in GUARANTEES)


def proves(*ids: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of promises. Raises UnknownGuaranteeError for an id that is not in the manifest."""
    unknown = sorted(set(ids) - IDS)
    if unknown or not ids:
        raise UnknownGuaranteeError(f"not in tests/guarantees.py: {', '.join(unknown) or 'a mark without an id'}")
    return pytest.mark.proves(*ids)
