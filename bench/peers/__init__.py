"""Other libraries that keep jobs in PostgreSQL, measured beside Deedbox, each in an environment of its own."""
