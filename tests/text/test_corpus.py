import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError, OptionError, RegardError, StorageError
from regard.text import EncodedCorpus, Vocabulary, read_texts, segmenters

TEXT = "to be or not to be\n\n我 喜欢 我\nthat is the question\n"
FILES = ["corpus.json", "ids.bin", "offsets.bin", "vocabulary.json"]


def write(path, content=TEXT):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def shown(corpus):
    return [corpus.vocabulary.decode(ids) for ids in corpus]


def run(program, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_paragraphs_come_back(tmp_path):
    corpus = EncodedCorpus.build(write(tmp_path / "x.txt"), tmp_path / "c")
    assert shown(corpus) == [text.split() for text in read_texts(tmp_path / "x.txt")]
    assert corpus.ids.dtype == np.int32
    assert corpus.offsets.dtype == np.int64
    assert corpus.offsets.tolist() == [0, 6, 9, 13]
    assert len(corpus) == 3
    assert corpus[-1].tolist() == corpus[2].tolist()
    assert repr(corpus) == "EncodedCorpus(3 paragraphs, 13 tokens)"
    assert sorted(os.listdir(tmp_path / "c")) == FILES
    with pytest.raises(IndexError, match=r"^paragraph 3 of 3$"):
        corpus[3]
    with pytest.raises(ValueError, match="read-only"):
        corpus.ids[0] = 1


words = st.sampled_from(["a", "b", "我", "洋葱洋葱", "longer-word", "1234567", "12345678", "\0"])
paragraphs = st.lists(st.lists(words, min_size=1, max_size=9).map(" ".join), max_size=9)


@given(
    texts=paragraphs,
    min_count=st.integers(1, 3),
    max_size=st.none() | st.integers(3, 5),
    specials=st.sampled_from([(), ("<unk>",), ("<pad>", "<unk>")]),
    threads=st.integers(1, 3),
)
def test_encoding_agrees_with_counting_and_encoding_by_hand(
    texts, min_count, max_size, specials, threads, tmp_path_factory
):
    split = [text.split() for text in texts]
    vocabulary = Vocabulary.count(split, min_count, max_size, specials)
    expected = [vocabulary.encode(tokens).tolist() for tokens in split]
    folder = tmp_path_factory.getbasetemp() / "agreeing"

    def build():
        return EncodedCorpus.build(
            iter(texts),
            folder,
            min_count=min_count,
            max_size=max_size,
            specials=specials,
            threads=threads,
        )

    if not any(expected):
        with pytest.raises(DataError, match=r"holds no token|no token of the source is left"):
            build()
        return
    corpus = build()
    assert [ids.tolist() for ids in corpus] == expected
    assert corpus.vocabulary == vocabulary


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_parts_and_threads_change_nothing(threads, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.text.decoding.BLOCK", 1000)
    monkeypatch.setattr("regard.text.counting.MERGE_AT", 100)
    random = np.random.default_rng(5)
    lines = [
        " ".join(f"w{n}" * (1 + n % 5) for n in random.zipf(1.3, random.integers(0, 30)) % 999)
        for _ in range(2000)
    ]
    write(tmp_path / "x.txt", "\n".join(lines))
    corpus = EncodedCorpus.build(
        tmp_path / "x.txt", tmp_path / "c", min_count=2, specials=(), threads=threads
    )
    truth = Counter(word for line in lines for word in line.split())
    kept = [[word for word in line.split() if truth[word] > 1] for line in lines if line]
    assert shown(corpus) == kept
    assert corpus.vocabulary.counts.tolist() == [truth[t] for t in corpus.vocabulary.tokens]


@pytest.mark.parametrize("name", segmenters.names())
def test_every_segmenter_encodes_files(name, tmp_path):
    segmenter = segmenters.create(name, normalization="nfkc", lowercase=True)
    texts = ["Ｔo be or not to be", "我喜欢吃洋葱", "½ ﬁsh"] * 3
    if name in ("bpe", "unigram", "wordpiece"):
        segmenter.train(texts, size=300)
    write(tmp_path / "x.txt", "\n".join(texts))
    corpus = EncodedCorpus.build(tmp_path / "x.txt", tmp_path / "c", segmenter)
    assert shown(corpus) == [segmenter(text).tokens for text in texts]
    again = EncodedCorpus.open(tmp_path / "c")
    assert again.segmenter(texts[0]) == segmenter(texts[0])


def test_tables_and_folders_and_a_given_vocabulary(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"text": ["to be", "a\nb"], "n": [1, 2]}), source / "b.parquet")
    write(source / "a.tsv", "n\ttext\n1\tnot to\n")
    vocabulary = Vocabulary(["be", "to"], [5, 7], specials=())
    corpus = EncodedCorpus.build(source, tmp_path / "c", vocabulary=vocabulary)
    assert shown(corpus) == [["to"], ["to", "be"], []]
    assert corpus.vocabulary == vocabulary
    numbers = EncodedCorpus.build(source, tmp_path / "d", column="n")
    assert shown(numbers) == [["1"], ["1"], ["2"]]


def identity(folder):
    return folder.stat().st_ino


def test_it_is_reused_while_nothing_changes(tmp_path):
    source, folder = write(tmp_path / "x.txt"), tmp_path / "c"
    EncodedCorpus.build(source, folder)
    first = identity(folder)
    EncodedCorpus.build(str(source), folder, "whitespace", 1)
    assert identity(folder) == first


@pytest.mark.parametrize(
    "options",
    [
        {"min_count": 2},
        {"max_size": 5},
        {"specials": ()},
        {"segmenter": "characters"},
        {"segmenter": segmenters.create("whitespace", lowercase=True)},
        {"errors": "replace"},
        {"encoding": "utf-8"},
        {"vocabulary": Vocabulary(["to", "be"])},
    ],
)
def test_it_is_encoded_anew_for_other_settings(options, tmp_path):
    source, folder = write(tmp_path / "x.txt"), tmp_path / "c"
    EncodedCorpus.build(source, folder)
    first = identity(folder)
    EncodedCorpus.build(source, folder, **options)
    second = identity(folder)
    assert second != first
    EncodedCorpus.build(source, folder, **options)
    assert identity(folder) == second


def test_it_is_encoded_anew_for_other_text(tmp_path):
    source, folder = write(tmp_path / "x.txt"), tmp_path / "c"
    old = EncodedCorpus.build(source, folder)
    write(source, TEXT.replace("not", "hot"))  # as long as before
    os.utime(source, ns=(1, 1))
    assert "hot" in EncodedCorpus.build(source, folder).vocabulary
    assert "not" in shown(old)[0]  # who has it open keeps it
    assert sorted(os.listdir(tmp_path)) == ["c", "x.txt"]


@pytest.mark.parametrize("name", FILES)
def test_a_folder_with_a_file_cut_short_is_not_trusted(name, tmp_path):
    source, folder = write(tmp_path / "x.txt"), tmp_path / "c"
    whole = shown(EncodedCorpus.build(source, folder))
    with open(folder / name, "r+b") as file:
        file.truncate(os.path.getsize(folder / name) - 2 if name != "corpus.json" else 5)
    with pytest.raises(DataError, match=r"encode the text again|is no encoded corpus|is not a voc"):
        EncodedCorpus.open(folder)
    assert shown(EncodedCorpus.build(source, folder)) == whole


def test_no_corpus(tmp_path):
    with pytest.raises(StorageError, match=r"is no encoded corpus: corpus.json: no such file"):
        EncodedCorpus.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n \n\t\n"])
def test_nothing_to_encode(content, tmp_path):
    write(tmp_path / "x.txt", content)
    with pytest.raises(DataError, match=r"x.txt holds no token: it is empty or blank$"):
        EncodedCorpus.build(tmp_path / "x.txt", tmp_path / "c")
    assert os.listdir(tmp_path) == ["x.txt"]


def test_nothing_left(tmp_path):
    write(tmp_path / "x.txt")
    with pytest.raises(DataError, match=r"^no token of .*x.txt is left: none occurs min_count=9"):
        EncodedCorpus.build(tmp_path / "x.txt", tmp_path / "c", min_count=9, specials=())


def test_damaged_text_leaves_nothing(tmp_path):
    write(tmp_path / "x.txt", b"fine\n" * 100_000 + b"\xff")
    with pytest.raises(DataError, match=r"^line 100001 of x.txt: byte 0xff at offset 500000 is no"):
        EncodedCorpus.build(tmp_path / "x.txt", tmp_path / "c")
    assert os.listdir(tmp_path) == ["x.txt"]
    corpus = EncodedCorpus.build(tmp_path / "x.txt", tmp_path / "c", errors="replace")
    assert corpus.vocabulary.tokens[2:] == ["fine", "\ufffd"]


@pytest.mark.parametrize("wrong", [[1], [["to", "be"]], [None]])
def test_paragraphs_must_be_strings(wrong, tmp_path):
    with pytest.raises(DataError, match=r"^a text must be a string; it got "):
        EncodedCorpus.build(iter(wrong), tmp_path / "c")


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    EncodedCorpus.build(write(tmp_path / "x.txt"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path / "real")) == FILES


def test_bad_options_are_seen_before_reading(tmp_path):
    with pytest.raises(OptionError, match=r"^min_count must be at least 1; it is 0$"):
        EncodedCorpus.build(tmp_path / "none.txt", tmp_path / "c", min_count=0)
    with pytest.raises(OptionError, match=r"^threads must be at least 1; it is 0$"):
        EncodedCorpus.build(tmp_path / "none.txt", tmp_path / "c", threads=0)


ENCODE = """
import sys
from regard.errors import RegardError
from regard.text import EncodedCorpus
try:
    corpus = EncodedCorpus.build(sys.argv[1], sys.argv[2], min_count=int(sys.argv[3]))
except RegardError as error:
    print(f"{type(error).__name__}: {error}")
else:
    print(corpus)
"""


def big_file(path, megabytes):
    random = np.random.default_rng(3)
    with open(path, "w") as file:
        while file.tell() < megabytes * 1e6:
            ranks = np.exp(random.random(40_000) * np.log(300_000)).astype(int)  # Zipf's law
            for line in ranks.reshape(-1, 20).tolist():
                file.write(" ".join(f"w{rank:x}" for rank in line) + "\n")
    return path


def test_a_killed_encode_leaves_nothing_that_is_trusted(tmp_path):
    source, folder = big_file(tmp_path / "x.txt", 6), tmp_path / "c"
    process = run(ENCODE, source, folder, 1)
    while not any(
        path.stat().st_size for path in tmp_path.glob(".c.*.new/codes.tmp")
    ):  # in the middle of it
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert list(tmp_path.glob(".c.*.new")) != []
    with pytest.raises(StorageError, match="is no encoded corpus"):
        EncodedCorpus.open(folder)
    corpus = EncodedCorpus.build(source, folder)
    assert corpus.vocabulary.decode(corpus[0]) == next(read_texts(source)).split()
    assert sorted(os.listdir(tmp_path)) == ["c", "x.txt"]


@pytest.mark.parametrize("counts", [(1, 1), (1, 2)])
def test_two_processes_at_once_both_end_well(counts, tmp_path):
    source, folder = big_file(tmp_path / "x.txt", 4), tmp_path / "c"
    processes = [run(ENCODE, source, folder, count) for count in counts]
    for process in processes:
        output, errors = process.communicate()
        assert output.startswith("EncodedCorpus("), errors
    corpus = EncodedCorpus.open(folder)
    text = next(read_texts(source)).split()
    for word, token in zip(text, corpus.vocabulary.decode(corpus[0]), strict=True):
        assert token in (word, "<unk>")
    assert sorted(os.listdir(tmp_path)) == ["c", "x.txt"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    source, folder = big_file(tmp_path / "x.txt", 4), tmp_path / "c"

    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    process = run(ENCODE, source, folder, 1, preexec_fn=small_files_only)
    output, errors = process.communicate()
    assert output == (
        f"StorageError: cannot write {folder}: file too large; nothing was left half-written\n"
    ), errors
    assert os.listdir(tmp_path) == ["x.txt"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root mounts")
def test_a_disk_that_fills_up(tmp_path):
    source, disk = big_file(tmp_path / "x.txt", 4), tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(RegardError, match=r"^cannot write .*c: no space left on device; noth"):
            EncodedCorpus.build(source, disk / "c")
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_that_changes_while_it_is_read(tmp_path):
    source = write(tmp_path / "x.txt", "one line\n" * 10)

    class Growing(segmenters.family.get("whitespace")):
        def batch_lines(self, page):
            with open(source, "a") as file:
                file.write("more\n")
            return super().batch_lines(page)

    with pytest.raises(DataError, match=r"x.txt changed while it was read; encode it again$"):
        EncodedCorpus.build(source, tmp_path / "c", Growing())
    assert os.listdir(tmp_path) == ["x.txt"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of peak memory")
def test_memory_does_not_grow_with_the_text(tmp_path):
    program = (
        "import re, sys; from regard.text import EncodedCorpus\n"
        "EncodedCorpus.build(sys.argv[1], sys.argv[2], min_count=5, threads=2)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    small = big_file(tmp_path / "small.txt", 15)
    with open(tmp_path / "large.txt", "wb") as large:
        for _ in range(10):
            large.write(small.read_bytes())
    peaks = []
    for name in ("small", "large"):
        process = run(program, tmp_path / f"{name}.txt", tmp_path / name)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        peaks.append(int(output) / 1024)  # the program's own: ru_maxrss starts at its parent's
    # Ten times the text, the same words: 135 MB more to read, 120 MB more of ids to write. What
    # may differ is what is under way at once: a dozen parts of a few MB each.
    assert peaks[1] - peaks[0] < 100
