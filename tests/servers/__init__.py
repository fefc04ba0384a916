"""Fake providers on loopback that really do what they are asked, count it, and fail on demand."""
