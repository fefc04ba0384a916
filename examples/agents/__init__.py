"""Agents that live elsewhere and act through Deedbox: one for each of three toolkits, and the desk that they use."""
