"""A Hypothesis state machine over the whole product: the real functions on a real database, checked after every step.

`world` is what it drives, `provider` is the outside, `seen` is what is read back, `promises` is what must hold, `rules` is
what may happen. The legal moves come from `deedbox.model.lifecycle` alone.
"""
