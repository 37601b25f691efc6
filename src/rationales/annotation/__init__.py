"""People annotate rationales, and guess from them: the paper's procedure with its two roles.

    passages ─► a selector ranks words ─► a predictor sees them one by one and guesses
    events of each annotator, append-only ─► replayed: the state ─► export · agreement · results

No module here knows the web: ``serve/annotate.py`` has the pages. Only ``model_lists.py`` needs a
model, before the study begins.
"""
