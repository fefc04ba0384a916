-- name: row_type
-- The id of a row type of the schema, which is another one in each database.
SELECT ('deedbox.' || %(name)s::text)::regtype::oid::bigint
