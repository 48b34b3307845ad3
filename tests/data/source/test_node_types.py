"""The types of nodes as numbers."""

from relbias.data.source.node_types import NodeTypes
from relbias.data.source.python import parse_python


def test_the_most_frequent_have_numbers_up_to_the_size():
    source = parse_python("x = y + z\nx")  # a module, an assignment, a sum, an expression and four names
    assert NodeTypes([source], size=3).names == ("Name", "Assign")
    assert len(NodeTypes([source], size=3)) == 3
    assert NodeTypes([source], size=1).names == ()
    assert NodeTypes([source], size=3).encode(source).tolist() == [0, 2, 1, 0, 1, 1, 0, 1]
