"""The fail-over run: PostgreSQL under Patroni, its leader killed under load, and a checker at the end."""
