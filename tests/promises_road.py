"""What is promised of the road: intake, workers, steps, leases, and the gate's first half."""

from tests.promise import Guarantee

ROAD: tuple[Guarantee, ...] = (
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
    Guarantee(
        "G-HELD-TASKS", "An attempt is not collected in mid-run, though nothing but its worker holds it.", "faults: leases"
    ),
    Guarantee(
        "G-TOLD-LATE",
        "A queue of notifications that is full makes no call fail and keeps no job from ending; telling begins again.",
        "faults: wake-up",
    ),
    Guarantee(
        "G-DUE-AT-ONCE",
        "However many jobs fall due at one instant, each step of the sweep is bounded, and several sweeps share them.",
        "faults: wake-up",
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
        "G-MODEL-JOURNAL",
        "Every question to a model is kept with its endpoint, tokens and cost, also one that failed; its contents are not.",
        "issue 5: model",
    ),
    Guarantee(
        "G-MODEL-FALLBACK",
        "Another model endpoint is asked only where the settings name it as a fallback and the first one is away.",
        "issue 5: model",
    ),
    Guarantee(
        "G-MODEL-DRAFT",
        "An answer that comes in pieces is shown as a draft on its way; a later attempt repeats none of it.",
        "issue 5: model",
    ),
    Guarantee(
        "G-AGENT-CHILD",
        "A tool that an agent calls is a job of its own below the agent's, for whoever that runs for.",
        "faces: tools",
    ),
    Guarantee("G-AGENT-ONCE", "Equal calls of a tool within one job are one job, however they are spelt.", "faces: tools"),
    Guarantee(
        "G-AGENT-RESUME",
        "A lost or failed attempt of an agent goes on where it stopped: no answer is asked for again, no tool runs again.",
        "issue 5: model",
    ),
    Guarantee(
        "G-AGENT-PENDING",
        "A tool that has no outcome yet ends the agent's turn; the model is told nothing until there is one.",
        "faces: tools",
    ),
    Guarantee(
        "G-AGENT-GATE", "An agent may call what its caller's roles may run, through the same gate, and no more.", "faces: tools"
    ),
    Guarantee(
        "G-AGENT-FINITE",
        "Requests, tokens, calls of tools and money of a job's agents are bounded over all of its attempts.",
        "lifecycle: classes",
    ),
    Guarantee(
        "G-AGENT-CANCEL", "Canceling a job cancels what it has called and what has not left.", "faults: beside n8n and agents"
    ),
    Guarantee(
        "G-HANDOFF",
        "Whoever drafts elsewhere is told no recipient and no key of ours, and what it hands in passes the same gate.",
        "issue 5: model",
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
)
