"""Dispatch: performing what was authorised, at most once, or saying that nobody knows.

**The problem.** Between asking a provider for something and reading its answer lies a moment in which everything may be
lost: the connection, this process, the provider. Whoever repeats then may act twice; whoever does not may never act. No
protocol of our own removes that moment, because the other side is not ours. What can be done is to name it.

**The ends of a sending.** A connector answers one of four, and never guesses:

| answer | means | the effect becomes |
|---|---|---|
| `Receipt` | the provider has it | `completed`, the receipt stored first |
| `Transient` | surely not accepted, may be tried again | `pending`, due after a wait; `failed` after 20 attempts |
| `Refused` | surely not accepted, and never will be | `failed` |
| `Ambiguous` | may have been accepted | `unknown`, or `pending` while the target's native key lives |

Whatever a connector raises is ambiguous too: an exception says where our code stopped, not what the provider did. A sender
that is killed says nothing, which is ambiguous; its lease runs out and sweep records it.

**Unknown is an answer.** An `unknown` effect is never sent again by itself, however long it stays. A look-up may confirm it
at any time. A look-up may disprove it only when the sender itself had closed the connection (otherwise the request may still
be under way) and the provider's visibility lag has passed (otherwise it may not show yet). Else a person says, with evidence
or, at a target that cannot be asked, with a second person.

**Before the wire.** The lease is one statement that reads everything that must stand at that moment: both halves of the
switch, the approval, the digest of the very bytes that go out. A connector gets values parsed from those bytes and nothing
else. A sender that comes to dial later than a quarter of a second after its lease asks the switch again. What is stopped
here was not sent, so it is `pending`, never `unknown`.

**After the wire.** Moves out of `sending` are fenced: only the sender that holds the lease decides. One exception: a receipt
is kept whoever brings it, because it is evidence. If the effect was taken over meanwhile, the late receipt completes it.

**Many at once.** A call takes a slot from its lease to its answer; keeping the answer takes none. Receipts of senders that hold
their fence share one statement and one commit (`settle.py`), the ends of their jobs a second one. Everything else, and every
receipt whose commit gave no answer, is looked at alone under its effect's lock, which tells what has been kept.

**Who ends the job.** Whoever ends the last effect, in a second transaction, so that no fault in the bookkeeping can take
back a receipt; sweep, where that one does not come.
"""
