"""Applications that tests run in real processes."""
