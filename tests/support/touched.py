"""The test files that belong to what changed since a commit: tests mirror the source, so the path tells.

python tests/support/touched.py [COMMIT]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ALWAYS = ("tests/test_imports.py",)


def changed(commit: str) -> list[Path]:
    """Files that differ from the commit, those that git does not know yet included."""
    differing = subprocess.run(["git", "diff", "--name-only", commit], capture_output=True, text=True, check=True)
    new = subprocess.run(["git", "ls-files", "-o", "--exclude-standard"], capture_output=True, text=True, check=True)
    return [Path(name) for name in (differing.stdout + new.stdout).splitlines()]


def tests_of(path: Path) -> list[Path]:
    """The test file of a source file, or all of its folder where it has none of its own; a test file is its own."""
    if path.parts[:1] == ("tests",):
        return [path] if path.name.startswith("test_") else []
    if path.parts[:2] != ("src", "dflearn"):
        return []
    folder = Path("tests", *path.parts[2:-1])
    own = folder / f"test_{path.stem}.py"
    return [own] if own.exists() else sorted(folder.glob("test_*.py"))


def main() -> None:
    wanted = {test for path in changed(*(sys.argv[1:2] or ["HEAD"])) for test in tests_of(path)}
    print(" ".join(sorted({*map(str, wanted), *ALWAYS} & {str(path) for path in Path("tests").rglob("test_*.py")})))


if __name__ == "__main__":
    main()
