"""Several machines that train one model: they meet, agree, and trade over torch.distributed.

A machine is one replica: its own workers race on its parameter array as ever, and a thread beside them trades with the
other machines (``pool.py``) over connections of two (``cluster.py``). Machine 0 leads: it finds the step, says which
epoch is next, evaluates, and keeps the checkpoints and the model.
"""
