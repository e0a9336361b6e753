"""The best few of many cosines, kept in one pass."""

from typing import no_type_check

from numba import njit


@njit(cache=True, nogil=True)
@no_type_check
def keep_best(cosines, candidates, excluded, best, best_rows):
    """Sort the cosines (N, C) of the rows `candidates` (C,) into `best` (N, top), greatest first.

    `best_rows` (N, top) says whose they are; the rows in `excluded` (N, E) are passed over. Of
    equal cosines the one that came first stands first.
    """
    last = best.shape[1] - 1
    for query in range(len(cosines)):
        for at in range(len(candidates)):
            cosine = cosines[query, at]
            if not cosine > best[query, last]:
                continue
            row = candidates[at]
            wanted = True
            for place in range(excluded.shape[1]):
                if excluded[query, place] == row:
                    wanted = False
            if not wanted:
                continue
            place = last
            while place > 0 and best[query, place - 1] < cosine:
                best[query, place] = best[query, place - 1]
                best_rows[query, place] = best_rows[query, place - 1]
                place -= 1
            best[query, place] = cosine
            best_rows[query, place] = row
