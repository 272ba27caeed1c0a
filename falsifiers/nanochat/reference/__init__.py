"""The implementations that the claims about nanochat are tried on."""
