"""Compares methods on the same data, objective and clock; the report is made from the result rows alone."""
