"""The `twinbus` command, one file per subcommand."""
