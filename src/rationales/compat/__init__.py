"""Compatibility: making a model's predictions on incomplete contexts mean something.

    text ─► rows of tokens ─► random subsets ─► one masked pass ─► loss ─► adapter
    text.py  samples.py       subsets.py        inputs.py          losses.py  adapter.py

A pretrained model has never seen a context with holes. *Word dropout* shows it some: contexts of
which a random subset is kept, with the prediction that the true marginal p(y_t | y_S) would make
as the optimum. Nothing is imported here, so that the command line answers at once.
"""
