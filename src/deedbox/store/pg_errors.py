"""The driver's errors, named by what they mean to those who may not know the driver."""

import psycopg

StoreError = psycopg.Error
"""Anything the database or the driver refused."""

UNREACHABLE: tuple[type[Exception], ...] = (psycopg.OperationalError, psycopg.InterfaceError, OSError, TimeoutError)
"""The database is not there, went away or did not answer in time: waiting helps, nothing was changed half."""
