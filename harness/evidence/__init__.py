"""Evidence: bundles that say what came of one run of one claim, sealed so that anybody can judge it again.

    Sealer(root, views).seal(result)   writes a bundle                      (harness.evidence.bundle)
    verify(path)                       finds what is wrong with one         (harness.evidence.verify)
    sign(path, signer)                 vouches for one                      (harness.evidence.signing)

Writing and verifying share the names and limits in `harness.evidence.layout` and nothing else.
"""
