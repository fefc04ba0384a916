"""Pure: no I/O and no clock."""
