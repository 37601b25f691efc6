"""The paper's tables on language models: agreement, annotated Lambada, efficiency."""
