"""A server for the official MCP conformance suite: our face, with the suite's fixtures put beside it by its own seams."""
