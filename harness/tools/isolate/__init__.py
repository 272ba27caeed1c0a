"""`harness run --isolate`: each subject runs in a separate process."""
