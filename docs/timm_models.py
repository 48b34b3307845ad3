"""Writes docs/timm.md: which of timm's models `relbias.plugins.timm.attach` supports, and why the others are not.

python docs/timm_models.py            write the page; builds every architecture without weights, a few minutes
python docs/timm_models.py --check    fail if the page is not current; a few minutes too
python docs/timm_models.py --names    fail if the page does not name the architectures that are there; a second
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import timm
from timm.models import list_modules

import relbias as rb
from relbias.encodings.base import find_encoding
from relbias.plugins.timm import attach, detach, list_models
from relbias.plugins.timm.hosts import find

PAGE = Path(__file__).with_name("timm.md")


def files() -> dict[str, list[str]]:
    """The architectures of each of timm's files."""
    return {file: timm.list_models(module=file) for file in list_modules()}


def encodings() -> list[str]:
    """The library's encodings that take a grid, by name."""
    classes = {name: find_encoding(name) for name in rb.list_encodings()}
    return [
        name
        for name, cls in classes.items()
        if issubclass(rb.relations.Grid, cls.relations) and cls.__module__.startswith("relbias.") and name != "none"
    ]


def refused(names: list[str]) -> set[str]:
    """Of the encodings those that the first of these models refuses."""
    model = timm.create_model(names[0], device="meta")
    found = set()
    for encoding in encodings():
        try:
            attach(model, encoding)
        except ValueError:
            found.add(encoding)
        else:
            detach(model)
    return found


def supported(file: str, names: list[str], missing: set[str]) -> str:
    """The row of a file in the table of those that are supported, with the encodings that it does not take."""
    classes, prefixes, paths = set(), set(), set()
    for name in names:
        root, host = find(timm.create_model(name, device="meta"))
        sites = host.sites(root, host.grid(root))
        classes.update(f"{type(site.module).__name__}" for site in sites)
        prefixes.update(site.relation.prefix_tokens for site in sites)
        paths.add(tuple(dict.fromkeys((site.relation.height, site.relation.width) for site in sites)))
    ordered = [", ".join(f"{height} x {width}" for height, width in path) for path in sorted(paths)]
    grids = "; ".join(ordered) if len(ordered) <= 4 else f"{ordered[0]}; ...; {ordered[-1]} ({len(ordered)} kinds)"
    cells = (
        f"`{file}`",
        str(len(names)),
        ", ".join(f"`{cls}`" for cls in sorted(classes)),
        grids,
        ", ".join(map(str, sorted(prefixes))),
        "all" if not missing else f"all but {_named(sorted(missing))}",
    )
    return f"| {' | '.join(cells)} |"


def reasons(names: list[str]) -> dict[str, int]:
    """Why architectures are not supported, and how many there are of each reason."""
    counts: dict[str, int] = defaultdict(int)
    for name in names:
        try:
            attach(timm.create_model(name, device="meta"), "table")
        except ValueError as error:
            counts[str(error).removeprefix(f"{name} is not supported: ").rpartition("; the nearest")[0]] += 1
        else:
            raise RuntimeError(f"{name} is attached to but not listed")
    return counts


def _named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    """The text of docs/timm.md."""
    listed = set(list_models())
    taken = {file: [name for name in names if name in listed] for file, names in files().items()}
    taken = {file: names for file, names in taken.items() if names}
    missing = {file: refused(names) for file, names in taken.items()}
    never = set.intersection(*missing.values())  # they are applied at the input alone
    given = [f"`{name}`" for name in encodings() if name not in never]
    rows = [supported(file, names, missing[file] - never) for file, names in taken.items()]
    lists = [line for file, names in taken.items() for line in ("", f"### {file}", "", _named(names))]
    others = defaultdict(list)
    for file, names in files().items():
        for reason, count in reasons([name for name in names if name not in listed]).items():
            others[reason].append(f"`{file}` ({count})")
    total = len(timm.list_models())
    return "\n".join(
        [
            "# timm's models",
            "",
            f"Written by `python docs/timm_models.py` with timm {timm.__version__}: `rb.plugins.timm.attach` supports "
            f"{len(listed)} of its {total} architectures. A model keeps its own biases, rotations, masks and gates; "
            "the encoding is added to them, and changes nothing until it is trained. Every row comes from building "
            "the models; the tests check the names, and the slow ones that exactly these are attached to.",
            "",
            f"Encodings: {', '.join(given)}; sums of these; your own over a `Grid`.",
            "",
            "## Supported",
            "",
            "- *attention*: the class of timm whose layers get an encoding.",
            "- *grids*: what the tokens of a layer lie on, height x width, for images of the size that an architecture "
            "is made for: patches of the image, a window's where a layer attends in windows, several where layers "
            "differ. Images of other sizes have the grid of their call.",
            "- *prefix tokens*: class, distillation and register tokens, which have codes of their own.",
            "- *encodings*: those of the list above that the first architecture takes.",
            "",
            "| file of timm | architectures | attention | grids | prefix tokens | encodings |",
            f"|{'---|' * 6}",
            *rows,
            "",
            "## Not supported",
            "",
            "`attach` refuses these with the reason and the name of the nearest model that is supported.",
            "",
            "| reason | files of timm (architectures) |",
            "|---|---|",
            *(f"| {reason} | {', '.join(names)} |" for reason, names in sorted(others.items())),
            "",
            "## Names",
            *lists,
            "",
        ]
    )


def wrong_names(text: str) -> list[str]:
    """What a page says about the names of architectures that is not so."""
    listed = set(list_models())
    named = set(re.findall(r"`(\w+)`", text.partition("\n## Names\n")[2]))
    wrong = [*(f"{name} is missing" for name in sorted(listed - named))]
    wrong += [f"{name} is not supported" for name in sorted(named - listed)]
    counted: dict[str, int] = defaultdict(int)
    for file, count in re.findall(
        r"`(\w+)` \((\d+)\)", text.partition("\n## Not supported\n")[2].partition("\n## ")[0]
    ):
        counted[file] += int(count)
    for file, names in files().items():
        others = len(set(names) - listed)
        if counted.pop(file, 0) != others:
            wrong.append(f"{file} has {others} architectures that are not supported")
    return wrong + [f"{file} is no file of timm" for file in counted]


def main() -> int:
    """The command."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--names" in sys.argv:
        wrong = wrong_names(text)
        print(f"not current: {', '.join(wrong)}; run: python docs/timm_models.py" if wrong else "current")
        return int(bool(wrong))
    new = page()
    if "--check" in sys.argv:
        print("current" if new == text else "not current; run: python docs/timm_models.py")
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
