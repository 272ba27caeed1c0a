"""The text that teacher, student and falsifier read, and a cache of what is costly to make."""
