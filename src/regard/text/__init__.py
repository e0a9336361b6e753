"""Text as tensors: files → paragraphs → tokens → ids → one-hot vectors."""

from regard.text import segmenters
from regard.text.corpus import EncodedCorpus
from regard.text.one_hot import OneHot, one_hot
from regard.text.reading import read_texts
from regard.text.segmenters import Segmenter, Tokens
from regard.text.tables import read_table
from regard.text.vocabulary import Vocabulary

__all__ = [
    "EncodedCorpus",
    "OneHot",
    "Segmenter",
    "Tokens",
    "Vocabulary",
    "one_hot",
    "read_table",
    "read_texts",
    "segmenters",
]
