"""Take the pictures of the report for the documentation: `python -m scripts.report_pictures`.

Needs Chromium and the extra `dev`. The ledger of a generated morning, and the same in two minutes, become reports.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from tests.browser import Browser, chromium, opened
from tests.spark.report.morning import write_morning

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
# Picture -> step of the morning in ms, width, height, colours, and the heading that is at its top.
SHOWN = {
    "report-outage": (60_000, 1400, 1100, "light", "h1"),
    "report-dark": (60_000, 1400, 1100, "dark", "section:nth-of-type(2) h2"),
    "report-seconds": (1_000, 1400, 900, "light", "section:nth-of-type(2) h2"),
    "report-phone": (1_000, 390, 1100, "light", "h1"),
}


def reported(folder: Path, step_ms: int) -> Path:
    ledger = folder / str(step_ms)
    write_morning(ledger, step_ms=step_ms)
    page = folder / f"{step_ms}.html"
    places = ["--ledger", str(ledger), "--tables", str(folder / f"tables-{step_ms}"), "--output", str(page)]
    subprocess.run([sys.executable, "-m", "twinbus", "report", *places], check=True)
    return page


def take(browser: Browser, page: Path, name: str, width: int, height: int, colours: str, heading: str) -> None:
    browser.prefer(colours)
    browser.resize(width, height, mobile=width < 500)
    browser.open(page.as_uri())
    browser.script(f"window.scrollTo(0, document.querySelector('{heading}').getBoundingClientRect().top - 24)")
    file = PICTURES / f"{name}.png"
    browser.picture(file)
    picture = Image.open(file).convert("RGB")
    # The page has a column of its own width in the middle.
    side = max((width - 1_040) // 2, 0)
    cut = picture.crop((side, 0, width - side, height))
    cut.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def main() -> None:
    with TemporaryDirectory() as folder, chromium() as driver, opened(driver) as browser:
        pages = {step: reported(Path(folder), step) for step in {each[0] for each in SHOWN.values()}}
        for name, (step_ms, width, height, colours, heading) in SHOWN.items():
            take(browser, pages[step_ms], name, width, height, colours, heading)


if __name__ == "__main__":
    main()
