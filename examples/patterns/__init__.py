"""Three ways of letting an action act: a person first, a window in which it can be canceled, and a look at a sample."""
