"""One module per table or figure of the paper.

    settings ─► parts (trained weights, measurements) ─► results.json · table.md · figures
                folder.py keeps what is finished         render/figures.py draws

Nothing is imported here, so that the command line answers at once.
"""
