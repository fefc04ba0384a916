"""What users of the library import: actions, contexts, connectors, outcomes."""
