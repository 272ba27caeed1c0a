"""F-BLACKWELL-PTX-001: what an engine brings along as machine code; ours, and anybody's that is seen from outside."""
