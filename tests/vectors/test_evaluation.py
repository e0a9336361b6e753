"""Evaluation against SciPy and gensim, on real judgments and on planted vectors."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from regard.errors import DataError, OptionError
from regard.vectors.evaluation import (
    chinese_analogies,
    evaluate_analogies,
    evaluate_similarity,
    pearson,
    spearman,
)
from regard.vectors.word_vectors import WordVectors

GENSIM = Path(find_spec("gensim").origin).parent / "test" / "test_data"


def made_for(words, size=11, seed=0):
    words = list(dict.fromkeys(words))
    matrix = np.random.default_rng(seed).standard_normal((len(words), size)).astype(np.float32)
    return WordVectors(words, matrix)


def in_gensim(vectors):
    keyed = KeyedVectors(vectors.size)
    keyed.add_vectors(vectors.tokens, np.array(vectors.matrix))
    return keyed


# Correlation

numbers = st.integers(-3, 3).map(float) | st.floats(-100, 100)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=40))
@pytest.mark.filterwarnings("ignore:An input array is")
def test_correlations_as_scipy(pairs):
    x, y = np.array(pairs).T
    if np.ptp(x) < 1e-6 or np.ptp(y) < 1e-6:
        return
    for ours, theirs in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        r, p = ours(x, y)
        expected = theirs(x, y)
        assert r == pytest.approx(expected.statistic, abs=1e-9)
        # Where |r| comes near 1, 1 - r² loses the digits that r holds.
        if abs(r) < 0.999:
            assert p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-300)


def test_tiny_p_values_keep_their_digits():
    x = np.arange(300.0)
    y = x + 40 * np.random.default_rng(0).standard_normal(300)
    assert pearson(x, y)[1] == pytest.approx(stats.pearsonr(x, y).pvalue, rel=1e-8)
    assert 0 < pearson(x, y)[1] < 1e-50


def test_a_constant_has_no_correlation():
    assert np.isnan(pearson(np.ones(5), np.arange(5))).all()


# Similarity


@pytest.fixture(scope="module")
def wordsim_words():
    lines = (GENSIM / "wordsim353.tsv").read_text().splitlines()
    return [w for line in lines if line[0] != "#" for w in line.split("\t")[:2]]


@pytest.mark.parametrize("options", [
    {}, {"case_insensitive": False}, {"dummy4unknown": True}, {"restrict_vocab": 150},
    {"restrict_vocab": 150, "dummy4unknown": True},
])  # fmt: skip
def test_similarity_as_gensim(wordsim_words, options):
    vectors = made_for([*wordsim_words[:500], "TIGER", "Love"])
    theirs = in_gensim(vectors).evaluate_word_pairs(str(GENSIM / "wordsim353.tsv"), **options)
    ours = vectors.evaluate_word_pairs(GENSIM / "wordsim353.tsv", **options)
    # gensim's cosines are float32, so that near ties may rank differently.
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-5)
    assert ours[2] == pytest.approx(theirs[2], abs=1e-12)


FORMS = {
    "tabs": "虎\t猫\t7.35\n书\t纸\t7.46\n王\t后\t8.58\n",
    "commas": "虎,猫,7.35\n书,纸,7.46\n王,后,8.58\n",
    "blanks": "虎 猫 7.35\n书  纸 7.46\n王 后 8.58\n",
    "header": "Word 1,Word 2,Human (mean)\n虎,猫,7.35\n书,纸,7.46\n王,后,8.58\n",
    "comments": "# set\n\n虎\t猫\t7.35\r\n书\t纸\t7.46\r\n王\t后\t8.58",
    "mark": "\ufeff虎\t猫\t7.35\n书\t纸\t7.46\n王\t后\t8.58\n",
    "columns": "w1\tw2\tPOS\tscore\n虎\t猫\tN\t7.35\n书\t纸\tN\t7.46\n王\t后\tN\t8.58\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_similarity_sets(tmp_path, form):
    path = tmp_path / "set"
    path.write_text(FORMS[form], encoding="utf-8", newline="")
    vectors = made_for("虎猫书纸王后")
    result = evaluate_similarity(vectors, path)
    assert (result.pairs, result.unknown, result.unknown_share) == (3, 0, 0)
    cosines = [vectors.similarity(*pair) for pair in ("虎猫", "书纸", "王后")]
    assert result.pearson == pytest.approx(stats.pearsonr([7.35, 7.46, 8.58], cosines)[0], abs=1e-6)
    assert result.spearman == pytest.approx(stats.spearmanr([1, 2, 3], cosines)[0])


def test_unknown_words_are_counted(tmp_path):
    path = tmp_path / "set"
    path.write_text(FORMS["tabs"] + "a\tb\t1\n虎\tb\t2\n虎\t书\t3\n")
    vectors = made_for("虎猫书纸王后")
    result = evaluate_similarity(vectors, path)
    assert (result.pairs, result.unknown) == (6, 2)
    assert result.unknown_share == pytest.approx(2 / 6)
    zeros = evaluate_similarity(vectors, path, unknown="zero")
    assert (zeros.pairs, zeros.unknown) == (6, 2)
    assert zeros.pearson != result.pearson


def test_bad_similarity_sets(tmp_path):
    path = tmp_path / "set"
    vectors = made_for("虎猫")
    for text, message in (
        ("虎\t猫\t7\n书\t纸\n", "line 2: '书\\\\t纸' where two words and a number are expected"),
        ("虎\t猫\t7\n书\t纸\tx\n", "line 2: '书.*where two words and a number"),
        ("", "holds no pair"),
        (": capitals\n", "holds no pair"),
        ("书\t纸\t7\n", "not one of its 1 pairs has two words with vectors"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            evaluate_similarity(vectors, path)
    path.write_text("虎\t猫\t7\n书\t纸\n虎\t虎\t8\n")
    assert evaluate_similarity(vectors, path, malformed="skip").pairs == 2
    path.write_bytes("虎\t猫\t7\n".encode("gb18030"))
    with pytest.raises(DataError, match="cannot be read as utf-8"):
        evaluate_similarity(vectors, path)
    for option in ({"unknown": "drop"}, {"malformed": "drop"}):
        with pytest.raises(OptionError, match=f"{next(iter(option))} must be one of"):
            evaluate_similarity(vectors, path, **option)
    with pytest.raises(OptionError, match="restrict must be 1 or more"):
        evaluate_similarity(vectors, path, restrict=0)


def test_other_encodings(tmp_path):
    path = tmp_path / "set"
    path.write_bytes("虎\t猫\t7\n虎\t虎\t9\n".encode("gb18030"))
    assert evaluate_similarity(made_for("虎猫"), path, encoding="gb18030").pairs == 2


# Analogies


def planted(questions, noise, seed=0):
    """Vectors in which b - a is one direction for each section, but for some noise."""
    generator = np.random.default_rng(seed)
    rows = {}
    for pairs in questions.values():
        offset = generator.standard_normal(13)
        for a, b in pairs:
            base = 2 * generator.standard_normal(13)
            rows.setdefault(a, base + noise * generator.standard_normal(13))
            rows.setdefault(b, base + offset + noise * generator.standard_normal(13))
    return WordVectors(list(rows), np.array(list(rows.values()), np.float32))


def sections_of(path):
    sections = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(":"):
            pairs = sections.setdefault(line[1:].strip(), [])
        else:
            a, b, _, _ = line.split()
            pairs.append((a, b))
    return sections


@pytest.fixture(scope="module")
def few_questions(tmp_path_factory):
    """Every 37th question of the English set, by section."""
    lines = (GENSIM / "questions-words.txt").read_text().splitlines()
    path = tmp_path_factory.mktemp("questions") / "few.txt"
    kept = [line for i, line in enumerate(lines) if line.startswith(":") or i % 37 == 0]
    path.write_text("\n".join(kept) + "\n")
    return path


@pytest.mark.parametrize("options", [
    {}, {"case_insensitive": False}, {"dummy4unknown": True}, {"restrict_vocab": 300},
    {"restrict_vocab": 300, "dummy4unknown": True, "case_insensitive": False},
])  # fmt: skip
def test_analogies_as_gensim(few_questions, options):
    vectors = planted(sections_of(few_questions), noise=0.35)
    half = WordVectors([*vectors.tokens[::2], "ATHENS", "paris"], np.concatenate(
        [vectors.matrix[::2], vectors.matrix[:2]]))  # fmt: skip
    for some in (vectors, half):
        theirs = in_gensim(some).evaluate_word_analogies(str(few_questions), **options)
        ours = some.evaluate_word_analogies(few_questions, **options)
        assert ours == theirs
    assert 0 < vectors.evaluate_word_analogies(few_questions)[0] < 1


def test_the_chinese_set_by_gensim(tmp_path):
    path = chinese_analogies()
    vectors = planted(sections_of(path), noise=0.3)
    ours = evaluate_analogies(vectors, path)
    assert ours.questions >= 200
    assert [s.name for s in ours.sections] == [
        "国家与首都",
        "省区与省会首府",
        "家庭与性别",
        "反义词",
    ]
    accuracy, sections = in_gensim(vectors).evaluate_word_analogies(str(path))
    assert ours.accuracy == pytest.approx(accuracy)
    assert [len(s.correct) for s in ours.sections] == [len(s["correct"]) for s in sections[:-1]]
    assert 0 < ours.accuracy < 1
    assert ours.unknown == 0


def test_the_chinese_set_is_sound():
    lines = chinese_analogies().read_text(encoding="utf-8").splitlines()
    questions = [line.split() for line in lines if not line.startswith(":")]
    assert all(len(set(q)) == 4 for q in questions)
    assert len({tuple(q) for q in questions}) == len(questions)
    answers = {}
    for a, b, c, d in questions:
        assert answers.setdefault(a, b) == b
        assert answers.setdefault(c, d) == d


def test_sections_and_unknown_words(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("man king woman queen\n: 二\nman king woman emperor\nwoman queen man king\n")
    matrix = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [0.3, -1, 0]])
    vectors = WordVectors(["man", "king", "woman", "queen", "apple"], matrix)
    result = evaluate_analogies(vectors, path)
    assert [(s.name, s.accuracy, s.unknown) for s in result.sections] == [
        ("questions", 1.0, 0),
        ("二", 1.0, 1),
    ]
    assert (result.questions, result.unknown, result.accuracy) == (3, 1, 1.0)
    assert result.unknown_share == pytest.approx(1 / 3)
    assert result.total.correct == [
        ("MAN", "KING", "WOMAN", "QUEEN"),
        ("WOMAN", "QUEEN", "MAN", "KING"),
    ]
    strict = evaluate_analogies(vectors, path, unknown="wrong")
    assert strict.accuracy == pytest.approx(2 / 3)
    assert evaluate_analogies(vectors, path, restrict=3).unknown == 3


def test_other_spellings_of_the_question_are_no_answer(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": one\nman king woman queen\n")
    words = ["man", "king", "woman", "Woman", "queen"]
    matrix = np.array([[1, 0, 0], [1, 0.5, 0], [0, 0, 1], [-0.1, 0.45, 1], [0, 0.6, 0.9]])
    vectors = WordVectors(words, matrix)
    assert vectors.analogy("man", "king", "woman")[0].token == "Woman"
    assert evaluate_analogies(vectors, path).accuracy == 1
    assert evaluate_analogies(vectors, path, ignore_case=False).accuracy == 0


def test_bad_analogy_sets(tmp_path):
    path = tmp_path / "questions.txt"
    vectors = made_for("abcd")
    path.write_text(": one\na b c d\na b c\n")
    with pytest.raises(DataError, match="line 3: 'a b c' where four words are expected"):
        evaluate_analogies(vectors, path)
    assert evaluate_analogies(vectors, path, malformed="skip").questions == 1
    path.write_text(": one\n")
    with pytest.raises(DataError, match="holds no analogy"):
        evaluate_analogies(vectors, path)
    for option in ({"unknown": "zero"}, {"malformed": "drop"}):
        with pytest.raises(OptionError, match=f"{next(iter(option))} must be one of"):
            evaluate_analogies(vectors, path, **option)
