"""Accepting a call under its key."""
