"""`python -m esper` is `esper`."""

from esper.cli import main

if __name__ == "__main__":  # workers import this module again
    raise SystemExit(main())
