"""Chaos: processes killed and frozen, the database restarted, connections cut, a provider that breaks, and a checker."""
