"""Who decides, and on exactly what."""
