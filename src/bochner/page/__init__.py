"""The report page: one self-contained HTML file about a fitted model; see `bochner.page.report`."""
