from regard.cli.demo import write_reviews
from regard.training import deduplicate, read_labelled


def test_the_review_corpus_without_repeats_and_contradictions(tmp_path):
    reviews = read_labelled(write_reviews(tmp_path / "reviews.tsv"), "text", "label")
    assert len(reviews) == 35123
    kept, dropped = deduplicate(reviews)
    assert len(kept) == 17363
    assert dropped.contradictory == 47
    assert set(kept.labels) == {"positive", "negative"}
