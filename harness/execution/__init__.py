"""A trial's side of the process boundary: the fork server, the supervisor, and what runs in the trial's own process."""
