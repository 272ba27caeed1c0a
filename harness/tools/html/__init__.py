"""HTML pages: one for each bundle, and an index. They need neither a server nor a script.

    bundle_page.render(contents, verification)    one bundle as a single file        (harness.tools.html.bundle_page)
    site.write(verifications, folder, …)          an index and a page for each       (harness.tools.html.site)

Bundles may be hostile. A page escapes and shortens their texts, and follows none of their links. If a bundle takes too
long or too much memory, its page says so.
"""
