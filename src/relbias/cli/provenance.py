"""Where a number comes from: the machine, the versions and the commit."""

import os
import platform
import subprocess
from pathlib import Path

import torch

import relbias


def machine() -> str:
    """The processor, its usable cores, the GPU where there is one, and torch's version."""
    parts = [
        _processor(),
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores",
    ]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join([*parts, f"torch {torch.__version__}"])


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of a clone, with ``-dirty`` where files differ from it, or the version of an installed package."""
    top = Path(relbias.__file__).resolve().parents[2]
    if not (top / ".git").exists():
        return f"version {relbias.__version__}"
    command = ["git", "-C", str(top), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"version {relbias.__version__}"
