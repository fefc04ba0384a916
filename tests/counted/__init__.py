"""Thousands of effects at providers that break, counted where they happen."""
