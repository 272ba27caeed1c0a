"""Execution of trials: the fork server, the supervisor, and the trial's own process."""
