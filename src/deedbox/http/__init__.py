"""The HTTP face: authenticate, translate, call."""
