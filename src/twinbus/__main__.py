"""`python -m twinbus` runs the `twinbus` command, for when only the interpreter's path is known."""

from twinbus.cli.main import run

if __name__ == "__main__":
    run()
