"""Running attempts under leases.

A claim gives an attempt a lease that ends by the database's clock and a fence that is never used again. A thread with a
connection of its own renews all leases of the process, so a handler that blocks the event loop does not lose its lease. What
the database does not confirm in time, by this process's monotonic clock, is given up before anyone else can take it
over: the handler is cancelled, its outcome is refused. Outcomes settle in batches under the fence: whatever no longer
holds its row changes nothing and is kept as a stale report. Until an outcome commits, nothing outside has happened: effects
exist only once the gate admits them in that same transaction.
"""
