"""Who decides, and on exactly what.

Nothing reaches the outbox except through this package. An attempt only proposes: `admit` keeps the proposal with the exact
bytes of every effect, asks the action's policy, and holds each group for a person under a digest over those bytes, the
action's version and the policy's version. `decide` is the one function by which any door (page, API, command line) decides:
it takes the digest the person was shown, and a decision on anything else is refused. Vote, approval, job state and outbox
rows are one transaction. Exactly one of a decision, a time-out and a cancellation wins: all three lock the job's queue row
first, then the approval. Silence never approves.
"""
