"""The sales desk: six tools that an agent may call against a small CRM, with roles, approvals and every kind of failure."""
