"""Pages for people: one for each bundle, and an index of them, as files that need neither a server nor a script.

    bundle_page.render(contents, verification)    one bundle as a single file        (harness.report.html.bundle_page)
    site.write(verifications, folder, …)          an index and a page for each       (harness.report.html.site)

A bundle may come from anybody. What it says is escaped, bounded, and never followed; what takes too long or too much
memory to show is a page that says so.
"""
