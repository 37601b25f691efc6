"""The paper's tables on translation: distractors and gold word alignments."""
