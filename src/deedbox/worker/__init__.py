"""Running attempts under leases."""
