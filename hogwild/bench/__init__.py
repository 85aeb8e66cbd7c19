"""Measurements of this machine, one file a family; each is a generator of flat rows (see ``suite.py``)."""
