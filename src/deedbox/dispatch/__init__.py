"""Performing authorised effects once, or saying that it is not known."""
