"""The driver's errors, named by what they mean to those who may not know the driver."""

import psycopg

StoreError = psycopg.Error
"""Anything the database or the driver refused."""

AWAY: tuple[type[Exception], ...] = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""What the driver raises while the database is away, restarts or fails over; trying again later can help."""

UNREACHABLE: tuple[type[Exception], ...] = (*AWAY, OSError, TimeoutError)
"""The same, as a loop or a start meets it: a socket that fails or an answer that does not come in time counts too."""
