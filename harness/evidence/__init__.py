"""Evidence: bundles that hold the result of one run of one claim, sealed so that anyone can judge it again.

    Sealer(root).seal(result)   writes a bundle                      (harness.evidence.seal)
    Bundle(path).record         reads one, part by part              (harness.evidence.bundle)
    verify(path)                finds what is wrong with one         (harness.evidence.verification)

Sealing and verifying share the names and limits in `harness.evidence.bundle_layout`; verifying trusts nothing else.
"""
