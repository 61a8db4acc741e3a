"""README.md as the package index shows it: no link into the repository that leads nowhere.

    DFLEARN_REPOSITORY=https://… python benchmarks/pages/package_readme.py FILE

Links and pictures get the address of the repository. Without an address, links become plain text and pictures go.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?P<place>(?![a-z]+:|#)[^)\s]+)\)")


def packaged(readme: str, repository: str) -> str:
    def mend(match: re.Match[str]) -> str:
        if not repository:
            return "" if match["picture"] else match["text"]
        kind = "raw" if match["picture"] else "blob"
        return f"{match['picture']}[{match['text']}]({repository.rstrip('/')}/{kind}/main/{match['place']})"

    return LINK.sub(mend, readme)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(packaged(file.read_text(), os.environ.get("DFLEARN_REPOSITORY", "")))
