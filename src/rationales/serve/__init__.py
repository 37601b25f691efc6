"""``rationales serve``: the viewer, live, and its JSON API.

    browser ─► safety.py (hosts, origins, token) ─► app.py (routes) ─► work.py (turns, threads)
            ─► Explainer: the front door that the command line uses too

Nothing is imported here, so that the command line answers at once. The server stores nothing.
"""
