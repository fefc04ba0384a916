"""Servers that tests run on loopback: real sockets, scripted behaviour."""
