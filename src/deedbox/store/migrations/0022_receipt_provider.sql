-- Receipts by the provider's id: a B-tree of its hash in place of a hash index, in which every receipt of a provider that gives all of
-- them one id walks the whole chain of those before (a million took five minutes). Locks: ACCESS EXCLUSIVE on receipt while the old
-- index goes and the new one is built, which reads every receipt that is kept.

DROP INDEX deedbox.receipt_provider;
CREATE INDEX receipt_provider ON deedbox.receipt (hashtextextended(provider_id, 0));
