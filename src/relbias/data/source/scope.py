"""A scope of a Python file, and where a name that is written in it is looked up."""

from __future__ import annotations


class Scope:
    """A part of a file with names of its own: the module, a class, a function, a lambda or a comprehension.

    Args:
        kind: "module", "class", "function" or "comprehension".
        above: the scope that it lies in.
        function: the place, in the order of the text, of the function whose variables are bound here; -1 for none.
        class_name: of the innermost class, whose private names (`__x`) are others than those of other classes.
    """

    __slots__ = (
        "above",
        "bound",
        "class_name",
        "first_parameter",
        "function",
        "global_names",
        "kind",
        "nonlocal_names",
    )

    def __init__(self, kind: str, above: Scope | None, function: int = -1, class_name: str = "") -> None:
        self.kind = kind
        self.above = above
        self.function = function
        self.class_name = class_name
        self.first_parameter = ""
        self.bound: set[str] = set()
        self.global_names: set[str] = set()
        self.nonlocal_names: set[str] = set()

    def own_name(self, name: str) -> str:
        """The name by which a name that is written here is kept, with that of the class if it is private to one."""
        if self.class_name and name.startswith("__") and not name.endswith("__"):
            return f"_{self.class_name}{name}"
        return name

    def find(self, name: str) -> Scope | None:
        """The scope whose name a name that is read here is, the module's if no other binds it.

        Args:
            name: as `own_name` gives it.

        Returns:
            None for `__class__` in a method, which no statement binds.
        """
        scope = self
        while scope.above is not None:
            if scope.kind != "class" or scope is self:  # what a class binds or declares does not hold in its functions
                if name in scope.global_names:
                    return scope.module
                if name in scope.bound and name not in scope.nonlocal_names:
                    return scope
            elif name == "__class__":
                return None
            scope = scope.above
        return scope

    @property
    def module(self) -> Scope:
        scope = self
        while scope.above is not None:
            scope = scope.above
        return scope

    @property
    def outside(self) -> Scope:
        """The scope around comprehensions, where a named expression (`x := 1`) binds its name."""
        scope = self
        while scope.kind == "comprehension" and scope.above is not None:
            scope = scope.above
        return scope
