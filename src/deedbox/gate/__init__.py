"""Who decides, and on exactly what.

Nothing reaches the outbox except through this package. An attempt only proposes. `judge` asks the action's policy, a pure
function of facts, once; what a rule would let out is weighed against its bounds (`weigh`) in the transaction that settles the
attempt. `admit` keeps the proposal with the exact bytes of every effect and each group's verdict, puts what is let out on the
outbox under that verdict, and holds the rest for a person under a digest over those bytes, the action's version and the
policy's version. Nobody asks the policy again: the dispatcher compares what is stored. `held_input` holds the arguments of an
action that is not to run before a person has seen them. `decide` is the one function by which any door (page, API, command
line) decides: it takes the digest the person was shown, and a decision on anything else is refused. Vote, approval, job state
and outbox rows are one transaction. Exactly one of a decision, a time-out and a cancellation wins: all three lock the job's
queue row first, then the approval; whoever takes places of a rule's day does so between the two. Silence never approves.
"""
