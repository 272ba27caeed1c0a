"""The recommender family: HSTU attention and what is said of it."""
