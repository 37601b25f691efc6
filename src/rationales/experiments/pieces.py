"""The pieces of words that a translation model reads and writes: one vocabulary for both languages.

Byte-pair encoding over bytes, so that every text has pieces and no piece is unknown. Names and
words that the languages share are the same pieces on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END = "<pad>", "</s>"
_CONTRACTED = r"(?:s|t|m|d|ll|re|ve)\b"
# Words are parted where people part them: "l'" "eau", "don" "'t", "vas" "-tu". Pieces do not cross
# from one to the next, so that they can be compared with alignments of words. Any other mark and
# any digit stands alone. A space goes with what follows.
_WORDS = (
    rf"['’]{_CONTRACTED}| ?-?[\p{{L}}\p{{M}}]+(?:['’](?!{_CONTRACTED}))?"
    r"| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]|\s+"
)
_SPACES = r"[\s\u00a0\u2007\u2009\u202f]+"


def train_pieces(sentences: Iterable[str], vocabulary: int) -> str:
    """The tokenizer of these sentences, as the text of its ``tokenizer.json``.

    A sentence becomes its pieces and an end token; the pad token also starts what is decoded.
    """
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.Strip(),
            normalizers.Prepend(" "),  # the first word is the same piece as anywhere else
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return tokenizer.to_str()


def load_pieces(file: Path, positions: int) -> PreTrainedTokenizerFast:
    """The tokenizer in a ``tokenizer.json``, as transformers knows it."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers
        tokenizer_object=Tokenizer.from_file(str(file)),
        pad_token=PAD,
        eos_token=END,
        model_max_length=positions,
        clean_up_tokenization_spaces=False,
    )
