"""Methods compared on the same data, objective and clock, and the report that is made of the rows alone."""
