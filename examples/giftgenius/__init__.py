"""Gift genius: a long job that reads a purchase history and a flaky shop, and tells of itself while it runs."""
