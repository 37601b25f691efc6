"""Renderers: they take explanations and draw them; results know nothing of them."""
