"""Settings of the whole suite: hypothesis profiles and one thread a worker."""

import os
import random

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import settings

settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile("thorough", max_examples=500, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

GOOD, BAD, NEUTRAL = "好棒赞", "坏差糟", "的了是我你他天地人大小上下"


@pytest.fixture(scope="session")
def planted():
    """Writes a table of texts of neutral characters, in which one more decides the label."""

    def write(path, count=240, seed=0):
        draw = random.Random(seed)
        with open(path, "w", encoding="utf-8") as table:
            table.write("text\tlabel\n")
            for i in range(count):
                text = draw.choices(NEUTRAL, k=draw.randint(3, 12))
                label, signs = (("good", GOOD), ("bad", BAD))[i % 2]
                text.insert(draw.randrange(len(text)), draw.choice(signs))
                table.write(f"{''.join(text)}\t{label}\n")
        return path

    return write
