"""Repairing what a crash or a silence left behind."""
