"""Measures Deedbox on the embedded PostgreSQL, with full durability, beside what the machine can do. See README.md."""
