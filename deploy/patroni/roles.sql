-- Run once as the superuser through HAProxy, after the first start of the cluster:
--   psql "host=... port=5000 user=postgres dbname=postgres" -v owner_password=... -v app_password=... -f roles.sql
-- deedbox_owner migrates (DEEDBOX_MIGRATE_URL), deedbox_app is what the processes run as (DEEDBOX_DATABASE_URL).
CREATE ROLE deedbox_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE deedbox_app LOGIN PASSWORD :'app_password';
CREATE DATABASE deedbox OWNER deedbox_owner;
