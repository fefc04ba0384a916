"""Drafting handed over to an agent elsewhere, by its API server and by its webhook: keys, gate and connectors stay here."""
