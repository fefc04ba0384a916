"""The support desk: an example with real inputs, two neighbours (a CRM and a mailbox) and actions that need approval."""
