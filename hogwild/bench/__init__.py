"""Measures training on a machine and on a user's data: ``suite.py`` lists what is measured, as flat rows."""
