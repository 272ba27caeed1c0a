"""A run of claims: planning, trials, judging, and the events that report them."""
