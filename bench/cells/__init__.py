"""What is measured, one cell a module: `measure` runs in the bench's process, `main` in a process of its own."""
