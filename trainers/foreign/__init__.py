"""Trainers that know nothing of this project, healthy or with a bug that trainers have had."""
