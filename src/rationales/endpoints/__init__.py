"""Models behind an endpoint: the client and its cache, probes, pieces of text, the explainer."""
