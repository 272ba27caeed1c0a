"""What each claim of the spec needs from a subject: one module a claim, named as the claim's falsifier."""
