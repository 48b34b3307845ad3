"""Every Python block of the README runs, in order, as one program; its commands and links are real."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from relbias.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_python_blocks_run(tmp_path):
    assert len(BLOCKS) >= 7
    program = "\n".join(f"print('block {number}', flush=True)\n{block}" for number, block in enumerate(BLOCKS))
    script = tmp_path / "readme.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT / 'src')!r})\n{program}", encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}:\n{done.stderr}"


def test_every_command_is_shown():
    shown = set()
    for line in re.findall(r"^relbias (\S+)", README, flags=re.MULTILINE):
        shown.update(line.split("|"))
    assert shown == set(COMMANDS)


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).is_file()


def test_encodings_in_the_table_exist():
    from relbias import list_encodings

    table = README.partition("## Encodings")[2].partition("## The command line")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    names = re.findall(r"`(\w+)`", " ".join(rows))
    assert len(rows) > 3
    assert len(names) > 20
    assert set(names) <= set(list_encodings())
