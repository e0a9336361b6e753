"""The inner loops of word2vec, compiled by Numba.

``training.py`` walks over the words, ``skipgram.py`` and ``cbow.py`` learn from one run of kept
words, ``block.py`` is one step on a small block of rows, ``simd.py`` its arithmetic, ``draws.py``
the random choices, ``state.py`` what they all work on.

Compiled code is cached on disk under a digest of these files, so an edited kernel is never run from
an older cache.
"""
