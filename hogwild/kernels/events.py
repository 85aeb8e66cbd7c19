"""How the simulator tells a kernel what its virtual workers do next: an int64 array of events.

An event is ``worker * KINDS + kind``. ``READ``: take the next row and compute its gradient; ``LOAD``: copy the row's
weights; ``STORE``: write its update; ``END``: add what is still owed to the shared intercept.
"""

READ, LOAD, STORE, END = range(4)
KINDS = 4
CHUNK, COUNT, FIRST = range(3)  # cells: the chunk whose rows are read or -1, the number of events, the first event
