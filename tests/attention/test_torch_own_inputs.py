"""PyTorch's own test inputs for nn.MultiheadAttention, and its own models with ours inside.

The wheel of PyTorch holds what its suite tests every module with: arguments of the constructor and
of forward, and references. To import them takes expecttest, which PyTorch itself does not require.
"""

import warnings
from copy import deepcopy

import pytest
import torch
from hypothesis import settings
from torch import nn

from regard.attention.torch_compat import MultiheadAttention

TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-10, 1e-12)}
MODELS = ["TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "Transformer"]


@pytest.fixture(scope="module")
def samples_of():
    pytest.importorskip("expecttest", reason="PyTorch's own test inputs import expecttest")
    dev, profile = settings.get_profile("dev"), settings.get_current_profile_name()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about PyTorch's own insides
        from torch.testing._internal.common_modules import module_db
    # The import puts profiles of its own in the place of ours.
    settings.register_profile("dev", dev)
    settings.load_profile(profile)

    known = {info.name: info for info in module_db}

    def make(name, **options):
        info = known[name]
        torch.manual_seed(0)
        samples = info.module_inputs_func(info, device="cpu", **options)
        assert len(samples) >= 32
        return samples

    return make


def run(module, given):
    """Outputs, and the gradients of inputs and parameters."""
    found = module(*given.args, **given.kwargs)
    found = found if isinstance(found, tuple) else (found,)
    loss = sum(x.sin().sum() for x in found)
    leaves = [x for x in (*given.args, *module.parameters()) if x.requires_grad]
    return [*found, *torch.autograd.grad(loss, leaves)]


def agree(found, expected, dtype):
    rtol, atol = TOLERANCE[dtype]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_the_layer_on_the_inputs_of_its_own_tests(samples_of, dtype, training, requires_grad):
    options = {"dtype": dtype, "training": training, "requires_grad": requires_grad}
    for sample in samples_of("nn.MultiheadAttention", **options):
        made, given = sample.constructor_input, sample.forward_input
        theirs = nn.MultiheadAttention(*made.args, **made.kwargs, dtype=dtype).train(training)
        ours = MultiheadAttention(*made.args, **made.kwargs, dtype=dtype).train(training)
        ours.load_state_dict(theirs.state_dict())
        found = run(ours, given)
        agree(found, run(theirs, given), dtype)
        reference = sample.reference_fn(ours, *given.args, **given.kwargs)
        agree(found[:2], reference, dtype)


def with_ours_inside(model):
    """A copy in which our layer stands wherever PyTorch's stood, with its weights."""
    model = deepcopy(model)
    for parent in list(model.modules()):
        for name, theirs in parent.named_children():
            if type(theirs) is nn.MultiheadAttention:
                ours = MultiheadAttention(
                    theirs.embed_dim,
                    theirs.num_heads,
                    bias=theirs.in_proj_bias is not None,
                    batch_first=theirs.batch_first,
                    dtype=theirs.out_proj.weight.dtype,
                )
                ours.load_state_dict(theirs.state_dict())
                setattr(parent, name, ours)
    return model.train(model.training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_its_models_with_our_layer_inside(samples_of, name, training):
    dtype = torch.float64
    options = {"dtype": dtype, "training": training, "requires_grad": True}
    for sample in samples_of(f"nn.{name}", **options):
        made, given = sample.constructor_input, sample.forward_input
        theirs = getattr(nn, name)(*made.args, **made.kwargs).to(dtype).train(training)
        ours = with_ours_inside(theirs)
        inside = [m for m in ours.modules() if isinstance(m, nn.MultiheadAttention)]
        assert inside
        assert all(type(m) is MultiheadAttention for m in inside)
        assert ours.state_dict().keys() == theirs.state_dict().keys()
        agree(run(ours, given), run(theirs, given), dtype)
