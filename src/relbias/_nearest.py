"""The hint that every message about an unknown name ends with."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Says which known name comes nearest to an unknown one, as the end of an error message.

    Args:
        name: what was given.
        known: the names that would have been right.

    Returns:
        ``"did you mean 'x'?"`` where a name comes near, else ``"known: a, b, c"`` (at most twelve of them).

    Example:
        >>> nearest("shae", ["shaw", "t5"])
        "did you mean 'shaw'?"
        >>> nearest("qqq", ["shaw", "t5"])
        'known: shaw, t5'
    """
    names = sorted(known)
    lower = {known_name.lower(): known_name for known_name in names}
    matches = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    if not matches:  # "digits" means "vision/digits"
        matches = [known_name for known_name in lower if name and known_name.endswith("/" + name.lower())][:1]
    if matches:
        return f"did you mean {lower[matches[0]]!r}?"
    return "known: " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
