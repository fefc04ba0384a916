"""The state machines of job, approval and effect, each declared once.

SQL guards (`store.loader`), CHECK constraints and the guard triggers of the schema, and the states page of the docs are
all derived from the tables below; a stale derived file fails `make check`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """One legal change of state.

    `sources` is empty for a move that creates the thing. A `fenced` move is applied only where the attempt (or the
    sender) that asks still holds the lease it was given.
    """

    name: str
    sources: tuple[str, ...]
    target: str
    actors: tuple[str, ...]
    fenced: bool = False
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who moves a thing on that is in a state and of a shape, and by which query it is found: `file.name` of a statement.

    A thing that fits no owner's query is lost for ever, so every shape of every live state has one.
    """

    state: str
    shape: str
    who: str
    query: str


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """All states and moves of one kind of thing, and, where they are named, who owns each live state."""

    name: str
    states: tuple[str, ...]
    ended: tuple[str, ...]
    moves: tuple[Move, ...]
    owners: tuple[Owner, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a table that names a state it does not declare, moves out of an ended one, or leaves one without an owner."""
        if self.owners and {owner.state for owner in self.owners} != set(self.live):
            raise ValueError(f"{self.name}: the owned states are not the live ones")
        for move in self.moves:
            unknown = {*move.sources, move.target} - set(self.states)
            if unknown:
                raise ValueError(f"{self.name}.{move.name} names unknown states {sorted(unknown)}")
            if set(move.sources) & set(self.ended):
                raise ValueError(f"{self.name}.{move.name} leaves an ended state")

    @property
    def live(self) -> tuple[str, ...]:
        """The states that some move still leaves."""
        return tuple(state for state in self.states if state not in self.ended)

    def sources(self, move_name: str) -> tuple[str, ...]:
        """All states the named move leaves, over every row of the table that has this name.

        Raises KeyError for a name the table does not have.
        """
        found = [move for move in self.moves if move.name == move_name]
        if not found:
            raise KeyError(f"{self.name} has no move {move_name!r}")
        wanted = {source for move in found for source in move.sources}
        return tuple(state for state in self.states if state in wanted)

    def edges(self) -> tuple[tuple[str, str], ...]:
        """Every pair (from, to) that some move allows, sorted by the order of the states."""
        pairs = {(source, move.target) for move in self.moves for source in move.sources}
        rank = {state: number for number, state in enumerate(self.states)}
        return tuple(sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]])))

    def allows(self, source: str, target: str) -> bool:
        """Whether some move leads from one state to the other."""
        return (source, target) in self.edges()


JOB = Lifecycle(
    name="job",
    states=(
        "queued",
        "running",
        "awaiting_human",
        "dispatching",
        "failed_retryable",
        "completed",
        "failed_terminal",
        "canceled",
    ),
    ended=("completed", "failed_terminal", "canceled"),
    moves=(
        Move("submit", (), "queued", ("caller",), notes="one transaction: key, job, queue row, event"),
        Move("hold_input", (), "awaiting_human", ("caller",), notes="the arguments are approved before the run"),
        Move("claim", ("queued",), "running", ("worker",), notes="new attempt, new fence, lease from the database clock"),
        Move("renew", ("running",), "running", ("worker",), fenced=True, notes="never past the cap on a lease's life"),
        Move("complete", ("running",), "completed", ("worker",), fenced=True, notes="no effects were proposed"),
        Move("hold", ("running",), "awaiting_human", ("worker",), fenced=True, notes="an approval per held group"),
        Move("authorize", ("running",), "dispatching", ("worker",), fenced=True, notes="every group allowed or delayed"),
        Move("back_off", ("running",), "queued", ("worker",), fenced=True, notes="transient failure, attempts left"),
        Move("exhaust", ("running",), "failed_retryable", ("worker",), fenced=True, notes="no attempts left"),
        Move("fail", ("running",), "failed_terminal", ("worker",), fenced=True, notes="permanent failure or denial"),
        Move("rescue", ("running",), "queued", ("sweep",), notes="lease ran out, attempts left; counts as an attempt"),
        Move("give_up", ("running",), "failed_retryable", ("sweep",), notes="lease ran out, none left: worker_lost"),
        Move("decide_part", ("awaiting_human",), "awaiting_human", ("human", "sweep"), notes="others are pending"),
        Move("approve", ("awaiting_human",), "dispatching", ("human", "sweep"), notes="something is authorised"),
        Move("approve_input", ("awaiting_human",), "queued", ("human",), notes="the held input may run"),
        Move("decline", ("awaiting_human",), "failed_terminal", ("human", "sweep"), notes="nothing is authorised"),
        Move("delivered", ("dispatching",), "completed", ("ender",), notes="all effects completed"),
        Move("undelivered", ("dispatching",), "failed_terminal", ("ender",), notes="an effect failed or was abandoned"),
        Move("take_up", ("failed_retryable",), "queued", ("operator", "caller"), notes="a new round"),
        Move("close", ("failed_retryable",), "failed_terminal", ("operator", "retention")),
        Move(
            "cancel",
            ("queued", "awaiting_human", "failed_retryable"),
            "canceled",
            ("caller", "operator", "deadline"),
            notes="at once; approvals withdrawn",
        ),
        Move("cancel_attempt", ("running",), "canceled", ("worker", "sweep"), fenced=True, notes="the flag was set"),
        Move(
            "cancel_effects",
            ("dispatching",),
            "canceled",
            ("caller", "operator"),
            notes="only while every effect is pending",
        ),
    ),
)

APPROVAL = Lifecycle(
    name="approval",
    states=("pending", "approved", "rejected", "expired", "superseded", "withdrawn"),
    ended=("approved", "rejected", "expired", "superseded", "withdrawn"),
    moves=(
        Move("request", (), "pending", ("gate",)),
        Move("approve", ("pending",), "approved", ("human",), notes="the n-th distinct approver moves it"),
        Move("reject", ("pending",), "rejected", ("human",), notes="with a reason"),
        Move("expire", ("pending",), "expired", ("sweep",), notes="silence never approves"),
        Move("supersede", ("pending",), "superseded", ("human",), notes="edited: a new approval, a new digest"),
        Move("withdraw", ("pending",), "withdrawn", ("caller", "operator"), notes="the job was canceled"),
    ),
)

EFFECT = Lifecycle(
    name="effect",
    states=("pending", "sending", "unknown", "completed", "failed", "canceled", "unknown_closed"),
    ended=("completed", "failed", "canceled", "unknown_closed"),
    moves=(
        Move("enqueue", (), "pending", ("gate",), notes="an approval or a verdict, exactly one"),
        Move("lease", ("pending",), "sending", ("dispatcher",), notes="reads switch, breaker, approval and digest"),
        Move("deliver", ("sending",), "completed", ("dispatcher",), fenced=True, notes="receipt stored first"),
        Move("retry", ("sending",), "pending", ("dispatcher",), fenced=True, notes="surely not accepted"),
        Move("refuse", ("sending",), "failed", ("dispatcher",), fenced=True, notes="permanent"),
        Move("lose_track", ("sending",), "unknown", ("dispatcher", "sweep"), fenced=True, notes="may be accepted"),
        Move("resend_same_key", ("sending",), "pending", ("dispatcher", "sweep"), fenced=True, notes="native key lives"),
        Move("doubt", ("pending",), "unknown", ("sweep",), notes="sent before, may be accepted, and its key has died"),
        Move("late_receipt", ("pending", "sending", "unknown"), "completed", ("replaced sender",)),
        Move("confirm", ("unknown",), "completed", ("reconciler", "human"), notes="look-up found it, or evidence"),
        Move("disprove", ("unknown",), "pending", ("reconciler", "human"), notes="it is certain that nothing arrived"),
        Move("expire", ("pending",), "failed", ("sweep",), notes="not_after passed: expired_unsent"),
        Move("abandon", ("unknown", "pending"), "failed", ("human",), notes="reason kept"),
        Move("cancel", ("pending",), "canceled", ("caller", "operator", "human", "sweep"), notes="atomic against lease"),
        Move("close_notice", ("sending",), "unknown_closed", ("dispatcher",), fenced=True, notes="an ambiguous notice"),
    ),
    owners=(
        Owner("pending", "due, and nothing holds it back", "dispatcher", "outbox.lease"),
        Owner("pending", "not due yet", "dispatcher", "outbox.next_due"),
        Owner("pending", "held back by switch, target, order or predecessor, or without a connector", "person", "waits.facts"),
        Owner("pending", "its time has passed", "sweep", "outbox.unsendable"),
        Owner("pending", "what it goes after was not done", "sweep", "outbox.unsendable"),
        Owner("pending", "sent before, and its key has died", "sweep", "outbox.unsendable"),
        Owner("sending", "under its lease", "dispatcher", "outbox.lock_effect"),
        Owner("sending", "its lease has run out", "sweep", "outbox.lapsed_sendings"),
        Owner("unknown", "a look-up is due", "reconciler", "reconcile.claim"),
        Owner("unknown", "a look-up is due later", "reconciler", "reconcile.next_look_up"),
        Owner("unknown", "nobody is asked any more", "person", "ledger.list_effects"),
        Owner("unknown", "for a long time", "sweep", "reconcile.remind"),
    ),
)

ALL = (JOB, APPROVAL, EFFECT)
