"""The tests: each promise of tests/guarantees.py is proved by one that says so."""
