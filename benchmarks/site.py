"""Are the pages of the documentation sound? ``make docs``, then ``python benchmarks/site.py``.

Every page of docs/_build/html is opened in headless Chromium (playwright; BOCHNER_CHROMIUM names a
browser), in light and dark colours: pictures that do not load, formulas that are not drawn,
messages on the console that are errors, and, where BOCHNER_AXE names axe-core's axe.min.js, its
violations of the serious and critical kind. Prints the pages on which there is anything, and sums.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import http.server
import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
PICTURES = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
FORMULAS = """document.querySelectorAll('.math').length
  - document.querySelectorAll('mjx-container').length
  + document.querySelectorAll('mjx-merror').length"""
VIOLATIONS = """async () => (await axe.run()).violations
  .filter(found => ["serious", "critical"].includes(found.impact)).map(found => found.id)"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def looked_at(tab: Any, url: str, axe: str | None) -> Counter[str]:
    """Open a page and count what is wrong with it."""
    errors: list[str] = []
    tab.on("console", lambda said: errors.append("error") if said.type == "error" else None)
    tab.goto(url)
    tab.wait_for_timeout(500)
    found = Counter(errors)
    found["picture"] = tab.evaluate(PICTURES)
    found["formula"] = tab.evaluate(FORMULAS)
    if axe is not None:
        tab.evaluate(axe)
        found.update(tab.evaluate(VIOLATIONS))
    return +found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", nargs="?", type=Path, default=SITE, help="folder of the pages")
    parser.add_argument(
        "--match", default="*", help="pages whose path is like this, such as gallery/*"
    )
    options = parser.parse_args()
    site = options.site
    from playwright.sync_api import sync_playwright

    names = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    pages = [name for name in names if not name.startswith("_static/")]
    pages = fnmatch.filter(pages, options.match)
    named = os.environ.get("BOCHNER_AXE")
    axe = None if named is None else Path(named).read_text()
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = os.environ.get("BOCHNER_CHROMIUM") or shutil.which("chromium")
    total: Counter[str] = Counter()
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            context = started.new_context(color_scheme=scheme)
            for page in pages:
                tab = context.new_page()
                found = looked_at(tab, f"http://127.0.0.1:{server.server_port}/{page}", axe)
                tab.close()
                total += found
                if found:
                    print(page, scheme, dict(found), flush=True)
        started.close()
    print(f"{len(pages)} pages, light and dark: {dict(total) or 'nothing'}")


if __name__ == "__main__":
    main()
