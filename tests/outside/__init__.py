"""Programs of the outside: run by their own interpreters, never imported by the tests."""
