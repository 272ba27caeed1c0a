"""What a checkpoint or a program holds, read without trusting it."""
