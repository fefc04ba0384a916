"""The console: login, inbox and the approval page, server-rendered, without scripts."""

from deedbox.web.routes import WebDeps, routes

__all__ = ["WebDeps", "routes"]
