"""The command `twinbus`, one file for each of its commands."""
