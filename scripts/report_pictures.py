"""Take the pictures of the report for the documentation: `python -m scripts.report_pictures twinbus-demo.html`.

Needs Chromium and the extra `dev`. The page is the one that `make demo` writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from tests.browser import Browser, chromium, opened

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
# Picture -> width, height, colours, and the heading that is at its top.
SHOWN = {
    "report-outage": (1400, 1180, "light", "h1"),
    "report-dark": (1400, 1180, "dark", "section:nth-of-type(2) h2"),
    "report-operations": (1400, 620, "light", "section:nth-of-type(4) h2"),
    "report-phone": (390, 1100, "light", "h1"),
}


def take(browser: Browser, page: Path, name: str, width: int, height: int, colours: str, heading: str) -> None:
    browser.prefer(colours)
    browser.resize(width, height, mobile=width < 500)
    browser.open(page.absolute().as_uri())
    browser.script(f"window.scrollTo(0, document.querySelector('{heading}').getBoundingClientRect().top - 40)")
    file = PICTURES / f"{name}.png"
    browser.picture(file)
    # The page has a column of its own width in the middle, and few colours.
    side = max((width - 1_040) // 2, 0)
    cut = Image.open(file).convert("RGB").crop((side, 0, width - side, height))
    cut.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def main(page: Path) -> None:
    with chromium() as driver, opened(driver) as browser:
        for name, shown in SHOWN.items():
            take(browser, page, name, *shown)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
