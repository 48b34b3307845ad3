"""The argument parser of the short commands."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are ValueErrors, so that they end as one line like all others.

    Example:
        >>> Parser(prog="relbias show").parse_args(["--no-such-option"])
        Traceback (most recent call last):
        ...
        ValueError: unrecognized arguments: --no-such-option; see relbias show --help
    """

    def error(self, message: str) -> NoReturn:
        """Raises ValueError in place of printing the usage and leaving the process."""
        raise ValueError(f"{message}; see {self.prog} --help")
