"""``python -m rationales``."""

from rationales.cli import main

main()
