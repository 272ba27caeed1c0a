"""What every other package stands on: strict JSON, schemas, the masking of secrets, and the words for what came out."""
