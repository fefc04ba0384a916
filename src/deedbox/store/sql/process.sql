-- name: keep_process
-- Publish a process: its version, its settings' hash, and its half of the switch.
INSERT INTO deedbox.process (process_id, roles, version, schema_version, settings_sha256, environment_switch)
VALUES (%(process_id)s, %(roles)s::text[], %(version)s, %(schema_version)s, %(settings_sha256)s, %(environment_switch)s)

-- name: forget_process
-- Say that a process has stopped.
UPDATE deedbox.process SET stopped_at = deedbox.clock(), seen_at = deedbox.clock() WHERE process_id = %(process_id)s

-- name: touch_process
-- Say that a process is alive: a real write, which is what readiness asks for.
UPDATE deedbox.process SET seen_at = deedbox.clock() WHERE process_id = %(process_id)s
