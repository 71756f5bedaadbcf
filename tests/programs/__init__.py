"""What `tests/programs.py` runs."""
