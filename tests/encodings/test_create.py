import pytest
import torch

import relbias as rb
from relbias.encodings import T5, EncodingSum, Shaw, Table
from relbias.relations import Grid, Hops, Sequence


def test_names_options_classes_and_callables():
    assert rb.create_encoding("shaw", 4, 16, max_distance=3).max_distance == 3
    assert rb.create_encoding(Shaw, 4, 16, max_distance=3).max_distance == 3
    made = rb.create_encoding(lambda heads, dim, relation: Shaw(heads, dim, relation, max_distance=2), 4, 16)
    assert (made.max_distance, made.num_heads, made.head_dim) == (2, 4, 16)
    assert made.relation == Sequence()


def test_a_built_encoding_is_shared_and_must_fit():
    built = T5(4, 16)
    assert rb.create_encoding(built, 4, 16) is built
    with pytest.raises(ValueError, match="built for 4 heads of 16"):
        rb.create_encoding(built, 8, 16)
    with pytest.raises(ValueError, match="already built"):
        rb.create_encoding(built, 4, 16, num_buckets=8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rb.create_encoding("tabel", 4, 16), "did you mean 'table'"),
        (lambda: rb.create_encoding("t5", 4, 16, num_bucket=8), "did you mean 'num_buckets'"),
        (lambda: rb.create_encoding("table", 4, 16), "Sequence\\(max_distance=128\\)"),
        (lambda: rb.create_encoding(3, 4, 16), "a name, a mapping, a callable or a built encoding; got 3"),
        (lambda: rb.create_encoding(lambda h, d, r: torch.nn.Linear(1, 1), 4, 16), "must return an Encoding"),
        (lambda: rb.create_encoding("t5", 4, 16, {"a": Sequence()}), "one encoding needs one relation"),
        (lambda: rb.create_encoding({"a": "t5"}, 4, 16, {"b": Sequence()}), "keys must agree"),
        (lambda: rb.create_encoding({"a": "t5"}, 4, 16, num_buckets=8), "do not apply"),
        (lambda: rb.create_encoding({}, 4, 16), "at least one"),
        (lambda: rb.create_encoding({"a.b": "t5"}, 4, 16), "identifiers"),
        (lambda: rb.create_encoding({"a": "sinusoidal"}, 4, 16), "applied at the input"),
        (lambda: rb.create_encoding({"training": "t5"}, 4, 16), "identifiers"),
        (lambda: rb.create_encoding({"type": "t5"}, 4, 16), "identifiers"),
        (lambda: rb.create_encoding("t5", 0, 16), "num_heads must be an integer of at least 1"),
    ],
)
def test_refusals_name_what_was_given_and_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wildcards():
    assert rb.list_encodings("rope_l*") == ["rope_linear", "rope_llama3", "rope_longrope"]
    assert {"none", "table", "t5", "alibi", "shaw", "sinusoidal", "learned"} <= set(rb.list_encodings())


def test_a_class_registers_itself_and_may_be_defined_again_but_not_take_a_name():
    def define(module):
        class Nothing(rb.Encoding):
            name = "test_nothing"
            __module__ = module

            def forward(self, index, *, x=None, attention=None):
                return rb.Terms()

        return Nothing

    first, second = define("a"), define("a")
    assert first is not second
    assert type(rb.create_encoding("test_nothing", 1, 1)) is second
    with pytest.raises(ValueError, match="taken by a"):
        define("b")


def test_a_sum_adds_the_terms_of_each_relation():
    encoding = rb.create_encoding(
        {"offset": "t5", "tree": "table"},
        4,
        16,
        {"offset": Sequence(), "tree": Hops(3)},
    ).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    offset, tree = Sequence()(6), Hops(3)(torch.randint(-1, 6, (2, 6, 6)))
    q, k, v = torch.randn(3, 2, 4, 6, 16, dtype=torch.float64).unbind()
    together = rb.relative_attention(q, k, v, encoding({"offset": offset, "tree": tree}))
    parts = encoding.encodings["offset"](offset) + encoding.encodings["tree"](tree)
    torch.testing.assert_close(together, rb.relative_attention(q, k, v, parts))
    alone = rb.relative_attention(q, k, v, encoding.encodings["offset"](offset))
    assert (together - alone).abs().max() > 0.01
    with pytest.raises(ValueError, match=r"an index for each of \['offset', 'tree'\]"):
        encoding({"offset": offset})
    encoding.zero_()
    torch.testing.assert_close(
        rb.relative_attention(q, k, v, encoding({"offset": offset, "tree": tree})), rb.relative_attention(q, k, v)
    )


def test_a_sum_on_one_relation_and_its_grids():
    encoding = rb.create_encoding({"a": "table", "b": "rope_axial"}, 4, 16, Grid(4, 4))
    assert encoding(encoding.grid_index(2, 3)).names == ("b", "rotation")
    assert encoding.fixed_size
    with pytest.raises(ValueError, match="resize"):
        encoding.grid_index(5, 4)
    two = rb.create_encoding({"a": "rope", "b": "rope"}, 4, 16)
    with pytest.raises(ValueError, match="at most one relation may rotate"):
        two({"a": Sequence()(3), "b": Sequence()(3)})


def test_papers_scales_of_a_sum_must_agree():
    assert EncodingSum({"a": T5(4, 16), "b": T5(4, 16)}).paper_scale == 1.0
    with pytest.raises(ValueError, match="differ in scale"):
        _ = EncodingSum({"a": T5(4, 16), "b": Shaw(4, 16)}).paper_scale
    with pytest.raises(ValueError, match="same"):
        EncodingSum({"a": T5(4, 16), "b": T5(2, 16)})


def test_an_index_of_another_relation_is_refused():
    with pytest.raises(ValueError, match="'table' takes an index made by Hops"):
        Table(4, 16, Hops(3))(Sequence(3)(5))


@pytest.mark.parametrize(
    ("name", "relation", "index"),
    [
        ("table", Hops(20), lambda: Hops(5)(torch.zeros(3, 3, dtype=torch.long))),
        ("table", Hops(5), lambda: Hops(5, prefix_tokens=1)(torch.zeros(3, 3, dtype=torch.long))),
        ("table", Sequence(128), lambda: Sequence(3)(5)),
        ("table", Grid(2, 5), lambda: Grid(5, 2)()),
        ("shaw", Sequence(), lambda: Sequence(3)(5)),
        ("rope_axial", Grid(3, 3), lambda: Grid(3, 3, prefix_tokens=1)()),
        ("t5", Sequence(), lambda: "x"),
    ],
)
def test_an_index_with_other_codes_is_refused(name, relation, index):
    encoding = rb.create_encoding(name, 4, 16, relation)
    with pytest.raises(ValueError, match="takes an index made by"):
        encoding(index())


def test_encodings_without_a_size_take_the_index_of_another_grid():
    for name in ("rope_axial", "shaw"):
        assert rb.create_encoding(name, 4, 16, Grid(3, 3))(Grid(9, 4)()).names


def test_strength_scales_u_and_keeps_infinite_biases():
    class Column(rb.Encoding):
        name = "test_column"

        def forward(self, index, *, x=None, attention=None):
            bias = torch.zeros(self.num_heads, *index.shape).masked_fill(torch.eye(index.shape[0]).bool(), -torch.inf)
            return rb.Terms(b=bias, u=torch.ones(self.num_heads, self.head_dim))

    encoding = Column(2, 4)
    encoding.zero_()
    (entry,) = encoding(Sequence()(3)).entries
    assert not entry.u.any()
    assert torch.equal(entry.b.isinf(), torch.eye(3).bool().expand(2, 3, 3))
    q = torch.randn(1, 2, 3, 4)
    out = rb.relative_attention(q, q, q, encoding(Sequence()(3)))
    assert torch.autograd.grad(out.sum(), encoding.strength)[0].isfinite().all()


def test_grid_index_keeps_the_codes_of_smaller_grids():
    encoding = Table(4, 16, Grid(3, 3))
    assert encoding.grid_index(2, 2).num_codes == 25
    with pytest.raises(ValueError, match="has no height and width"):
        T5(4, 16).grid_index(2, 2)
