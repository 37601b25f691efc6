"""Compatibility: predictions of a model on incomplete contexts that can be relied on.

    text ─► rows of tokens ─► random subsets ─► one masked pass ─► loss ─────► adapter
    text.py  rows.py          subsets.py        inputs.py          losses.py   students.py
                                                └── trainer.py, train.py ──┘   adapter.py

A pretrained model has never seen an incomplete context. *Word dropout* shows it some: contexts of
which a random subset is kept, with the prediction that the true marginal p(y_t | y_S) would make
as the optimum. Nothing is imported here, so that the command line answers at once.
"""
