"""One module for each table or figure of the paper.

    settings, model, data ─► run.py (folder) ─► finding.py (rationales, a line each)
                          ─► tables.py (means, intervals) ─► results.json · table.md · figures

Nothing is imported here, so that the command line answers at once.
"""
