"""Names → models: the default model, a folder, a GGUF file, or a model of the hub.

Importing these modules imports neither torch nor transformers.
"""
