"""What holds for every family of models: its test file subclasses HostCase and says how a small model is made."""

import copy

import pytest
import timm
import torch

import relbias as rb
from relbias.plugins import engine
from relbias.plugins.binding import bound
from relbias.plugins.timm import attach, detach, settings
from relbias.plugins.timm.hosts import find

ENCODINGS = ("table", "swin_v2", "irpe", "shaw", "alibi", "rope_axial", "rope_mixed", {"a": "table", "b": "rope_axial"})


def randomised(model):
    """The model in eval mode, with weights for which attention matters to the output."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                sharp = 2.0 if any(part in name for part in ("qkv", "q_proj", "k_proj")) else 1.0
                parameter.copy_(noise * sharp * parameter[0].numel() ** -0.5)
            else:
                parameter.copy_(0.1 * noise + (0 if name.endswith("bias") else 1))
    return model.eval()


def encodings(model):
    """Those attached to a model, or to the encoder inside a classifier."""
    return engine.encodings(find(model)[0])


def moved(model, std=1.0):
    """The model after its encodings have left their start; equal models are moved equally."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for encoding in encodings(model):
            for parameter in encoding.parameters():
                parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
    return model


class HostCase:
    """Tests of a family.

    A subclass gives:
        architecture, arguments: of a small model, with two blocks.
        patch: the side of a patch, in pixels.
        grid: of its images, (height, width), not a square.
        smaller: another grid.
        sizes: whether the model takes images of "any" size, of the one "set" by set_input_size, or of its own alone.
        compiled: whether it is compiled and exported, which takes time; once for each kind of model.
    """

    architecture = ""
    arguments: dict = {}
    patch = 16
    grid = (3, 5)
    smaller = (2, 4)
    sizes: str | None = None
    tolerance = 2e-4
    compiled = True

    def make(self, **arguments):
        torch.manual_seed(0)
        size = (self.patch * self.grid[0], self.patch * self.grid[1])
        return randomised(timm.create_model(self.architecture, **{"img_size": size, **self.arguments, **arguments}))

    def images(self, grid=None, batch=2):
        height, width = grid or self.grid
        generator = torch.Generator().manual_seed(2)
        return torch.rand(batch, 3, self.patch * height, self.patch * width, generator=generator)

    def attentions(self, model):
        """In the order of their calls."""
        return [block.attn for block in getattr(model, "encoder", model).blocks]

    def table_grids(self, model):
        """The grid of each attention's own tokens in a call with images of `grid`."""
        return [self.grid] * len(self.attentions(model))

    def call_grids(self, model, grid):
        return [grid] * len(self.attentions(model))

    def prefix_tokens(self, model):
        return getattr(model, "encoder", model).num_prefix_tokens

    def attach(self, model, encoding="table", **options):
        attach(model, encoding, grid=self.grid, **options)
        return model

    @pytest.mark.parametrize("fused", [True, False])
    def test_exactly_unchanged_until_moved_and_after_detach(self, fused):
        model, images = self.make(), self.images()
        for attention in self.attentions(model):
            attention.fused_attn = fused
        keys, classes = list(model.state_dict()), [type(module) for module in model.modules()]
        with torch.no_grad():
            before = model(images)
        scale = max(1.0, float(before.abs().max()))
        for encoding in ENCODINGS:
            with torch.no_grad():
                self.attach(model, encoding)
                assert (model(images) - before).abs().max() == 0.0, encoding
            out = model(images)
            assert (out - before).abs().max() <= 1e-6 * scale, encoding
            model.forward_features(images).square().sum().backward()  # not of one token alone
            for layer in encodings(model):
                grads = [parameter.grad for parameter in layer.parameters()]
                assert any(grad is not None and grad.abs().max() > 0 for grad in grads), encoding
            with torch.no_grad():
                assert (moved(model)(images) - before).abs().max() > 1e-3, encoding
                detach(model)
                assert torch.equal(model(images), before)
        assert list(model.state_dict()) == keys
        assert [type(module) for module in model.modules()] == classes

    def biased(self, model, tables, bias_mask, images, grid, monkeypatch):
        """The output of a plain model with a bias made pair by pair added in every attention."""
        triples = zip(tables, self.table_grids(model), self.call_grids(model, grid), strict=True)
        masks = iter([bias_mask(t, own, of_call, self.prefix_tokens(model)) for t, own, of_call in triples])
        plain = torch.nn.functional.scaled_dot_product_attention

        def with_bias(q, k, v, attn_mask=None, **arguments):
            mask = next(masks)
            if q.ndim == 3:  # heads and batch are one axis
                mask = mask[0].repeat(q.shape[0] // mask.shape[1], 1, 1)
            return plain(q, k, v, attn_mask=mask if attn_mask is None else attn_mask + mask, **arguments)

        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.functional, "scaled_dot_product_attention", with_bias)
            out = model(images)
        assert next(masks, None) is None
        return out

    def test_a_table_is_the_bias_pair_by_pair(self, bias_mask, monkeypatch):
        model, plain = moved(self.attach(self.make())), self.make()
        tables = [attention.encoding.table for attention in self.attentions(model)]
        images = self.images()
        wanted = self.biased(plain, tables, bias_mask, images, self.grid, monkeypatch)
        torch.testing.assert_close(model(images), wanted, rtol=self.tolerance, atol=self.tolerance)
        assert (wanted - plain(images)).abs().max() > 1e-2
        if self.sizes is None:
            return
        if self.sizes == "set":
            for each in (model, plain):
                each.set_input_size(tuple(self.patch * side for side in self.smaller))
        images = self.images(self.smaller)
        wanted = self.biased(plain, tables, bias_mask, images, self.smaller, monkeypatch)
        torch.testing.assert_close(model(images), wanted, rtol=self.tolerance, atol=self.tolerance)
        assert bound() is None

    def test_a_larger_grid_names_resize(self):
        model = moved(self.attach(self.make()))
        if self.sizes is None:
            return
        larger = tuple(side + 1 for side in self.grid)
        before = model(self.images())
        if self.sizes == "set":
            model.set_input_size(tuple(self.patch * side for side in larger))
        with pytest.raises(ValueError, match="`resize`"):
            model(self.images(larger))
        rb.plugins.timm.resize(model, larger)
        assert torch.isfinite(model(self.images(larger))).all()
        if self.sizes == "any":
            assert torch.equal(model(self.images()), before)

    def test_strict_state_dicts_settings_and_copies(self):
        plain = self.make()
        model = moved(self.attach(copy.deepcopy(plain), {"a": "table", "b": "irpe"}))
        images = self.images()
        wanted = model(images)
        fresh = self.make()
        attach(fresh, **settings(model))
        fresh.load_state_dict(model.state_dict(), strict=True)
        assert torch.equal(fresh(images), wanted)
        copied = copy.deepcopy(model)
        assert torch.equal(copied(images), wanted)
        detach(copied)
        copied.load_state_dict(plain.state_dict(), strict=True)
        assert torch.equal(copied(images), plain(images))
        assert torch.equal(model(images), wanted)

    def test_checkpointing_recomputes_with_the_grid_of_its_call(self):
        model = moved(self.attach(self.make()), std=0.3)
        grids = (self.grid, self.smaller) if self.sizes == "any" else (self.grid,)
        calls, found = [], []
        self.attentions(model)[0].register_forward_pre_hook(lambda *_: calls.append(1))
        for checkpointing in (False, True):
            calls.clear()
            model.zero_grad()
            model.set_grad_checkpointing(checkpointing)
            sum(model(self.images(grid)).square().sum() for grid in grids).backward()
            found.append({key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None})
            assert len(calls) == len(grids) * (1 + checkpointing)
        assert any(".encoding." in key for key in found[0])
        for key, gradient in found[0].items():
            scale = float(gradient.abs().max())
            torch.testing.assert_close(found[1][key], gradient, rtol=1e-4, atol=1e-5 * max(1.0, scale), msg=key)

    def test_intermediates_and_features_only(self):
        model = moved(self.attach(self.make()))
        images = self.images()
        final, between = model.forward_intermediates(images)
        torch.testing.assert_close(final, model.forward_features(images))
        early = model.forward_intermediates(images, indices=[0], stop_early=True, intermediates_only=True)
        torch.testing.assert_close(early, between[:1])
        wrapper = self.make(features_only=True, out_indices=(0, 1))
        self.attach(wrapper)
        state = model.state_dict()
        wrapper.model.load_state_dict({key: state[key] for key in wrapper.model.state_dict()})
        torch.testing.assert_close(wrapper.eval()(images), between)

    def test_compile_and_export(self):
        if not self.compiled:
            return
        model = moved(self.attach(self.make(depth=1), {"a": "table", "b": "rope_axial"}))
        images = self.images()
        with torch.no_grad():
            wanted = model(images)
            tolerance = {"rtol": 0, "atol": 1e-5 * max(1.0, float(wanted.abs().max()))}
            torch._dynamo.reset()
            torch.testing.assert_close(
                torch.compile(model, fullgraph=True, backend="eager")(images), wanted, **tolerance
            )
            exported = torch.export.export(model, (images,), strict=False).module()
            torch.testing.assert_close(exported(images), wanted, **tolerance)

    def test_half_precision_and_no_storage(self):
        model = moved(self.attach(self.make(), {"a": "table", "b": "rope_mixed", "c": "irpe"}))
        images = self.images()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(images)
        assert torch.isfinite(out).all()
        wanted = model(images)
        assert (out - wanted).abs().max() < 0.2 * (1 + wanted.abs().max())
        with torch.device("meta"):
            empty = timm.create_model(self.architecture, **self.arguments)
        attach(empty, "table")
        assert all(parameter.is_meta for encoding in encodings(empty) for parameter in encoding.parameters())
