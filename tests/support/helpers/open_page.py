"""A report page that is open in a browser."""


class Page:
    """A page that is open, with what it said and asked for."""

    def __init__(self, browser, path, **options):
        self.errors, self.requests = [], []
        self.tab = browser.new_page(**options)
        self.tab.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type == "error" else None,
        )
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda asked: self.requests.append(asked.url))
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)

    def text(self, selector):
        return self.tab.inner_text(selector)

    def place(self, across, up):
        box = self.tab.locator("#map").bounding_box()
        return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]

    def row_on_screen(self, i):
        """Where row i is drawn, from the ranges of the map itself."""
        return self.tab.evaluate(
            """(i) => {
                const box = document.getElementById("map").getBoundingClientRect();
                const [x, y] = window.bochnerPage.toScreen(i);
                return [box.x + x, box.y + y];
            }""",
            i,
        )
