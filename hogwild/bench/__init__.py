"""Measurements of this machine, one file per family; each is a generator of flat rows (see ``suite.py``)."""
