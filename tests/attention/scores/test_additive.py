"""Published values of other libraries' own tests of additive attention, computed again.

AllenNLP, tests/modules/attention/additive_attention_test.py (commit 6081fa1): scores.
Keras, keras/src/layers/attention/additive_attention_test.py (commit 4d7f7ae): weights and outputs.
"""

import torch

from regard.attention import attend, masks, rows, scores
from regard.attention.call import make_call


def filled(query_weight, key_weight, weight):
    width, hidden = len(key_weight), len(weight)
    score = scores.create("additive", heads=1, head_width=width, hidden_width=hidden)
    with torch.no_grad():
        score.query_weight.copy_(torch.tensor(query_weight))
        score.key_weight.copy_(torch.tensor(key_weight))
        score.weight.copy_(torch.tensor(weight))
    return score


def test_scores_of_allennlp():
    # Queries of width 2 meet keys of width 3: a zero fills the query up.
    score = filled(
        [[-0.2, 0.3], [-0.5, 0.5], [0.0, 0.0]],
        [[0.0, 1.0], [1.0, 1.0], [1.0, -1.0]],
        [1.0, -1.0],
    )
    query = torch.tensor([[0.7, -0.8, 0.0], [0.4, 0.9, 0.0]])[:, None, None]
    key = torch.tensor(
        [
            [[1.0, -1.0, 3.0], [0.5, -0.3, 0.0], [0.2, -1.0, 1.0], [0.7, 0.8, -1.0]],
            [[-2.0, 3.0, -3.0], [0.6, 0.2, 2.0], [0.5, -0.4, -1.0], [0.2, 0.2, 0.0]],
        ]
    )[:, None]
    published = torch.tensor(
        [
            [1.975072, -0.04997836, 1.2176098, -0.9205586],
            [-1.4851665, 1.489604, -1.890285, -1.0672251],
        ]
    )
    torch.testing.assert_close(score(query, key)[:, 0, 0], published, rtol=1e-6, atol=1e-6)


def test_weights_and_outputs_of_keras():
    # Keras adds query and key as they are and sums the tanh: identities and ones.
    identity = [[1.0, 0.0], [0.0, 1.0]]
    score = filled(identity, identity, [1.0, 1.0])
    query = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    key = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])
    value = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    call = make_call(query, key, value, score=score)
    # Published to three digits, with a tolerance of 1e-3.
    weights = torch.tensor([[0.636, 0.363], [0.363, 0.636]])
    torch.testing.assert_close(rows.weights(call)[0, 0], weights, rtol=0, atol=1e-3)
    output = torch.tensor([[1.727, 2.727], [2.272, 3.272]])
    for path in ("reference", "blockwise", "additive"):
        found = attend(query, key, value, score=score, path=path)[0, 0]
        torch.testing.assert_close(found, output, rtol=0, atol=1e-3)


def test_keras_with_a_mask():
    # One key is padding: both queries read the other alone. Keras then sets the padded query's
    # output to zero; here that is up to the caller.
    identity = [[1.0, 0.0], [0.0, 1.0]]
    score = filled(identity, identity, [1.0, 1.0])
    query = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    ones = torch.ones(1, 1, 2, 2)
    call = make_call(
        query, ones, ones, score=score, mask=masks.Padding(torch.tensor([[True, False]]))
    )
    assert rows.weights(call)[0, 0].tolist() == [[1.0, 0.0], [1.0, 0.0]]
