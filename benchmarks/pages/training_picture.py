"""The picture of `dfl train`'s page in docs/images: train on the example's tables, open the page in Chromium, photograph it.

    python benchmarks/pages/training_picture.py

Needs Chromium (apt-get install chromium), and takes a minute or two.
"""

from __future__ import annotations

import base64
import contextlib
import io
import runpy
import sys
import tempfile
from pathlib import Path

from PIL import Image

from dflearn.cli import main

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "training-page.png"
WIDTH, HEIGHT = 1120, 1250


def photograph(page: Path, picture: Path) -> None:
    """The top of the page, as a screen of this width shows it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import browser

    chromium = browser.find()
    if chromium is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    with browser.Browser(chromium) as tab:
        tab.open(page, width=WIDTH, height=HEIGHT)
        tab.evaluate("document.documentElement.style.scrollbarWidth = 'none'")
        shot = tab("Page.captureScreenshot", captureBeyondViewport=False)
    taken = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    taken.quantize(64).save(picture, optimize=True)  # a page has few colours


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["own_tables.py", "--out", folder]
        runpy.run_path(str(ROOT / "examples" / "own_tables.py"), run_name="__main__")
        train = "--program workshop.lp --features x.csv --costs y.csv --id day --out model.dfl --unit EUR --minutes 10"
        with contextlib.chdir(folder):
            main(["train", *train.split()])
        photograph(Path(folder, "model.html"), PICTURE)
    print(f"{PICTURE}: {PICTURE.stat().st_size // 1024} KB")
