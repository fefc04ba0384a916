"""What is promised beyond: the rest of the gate, what leaves, who is asking, and what is kept."""

from tests.promise import Guarantee

BEYOND: tuple[Guarantee, ...] = (
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
        "G-TARGET-SETTINGS",
        "A dispatcher that starts while the database is away waits for it, and sends nothing before it has its limits.",
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
