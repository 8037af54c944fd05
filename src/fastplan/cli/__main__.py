"""`python -m fastplan.cli` does what `fastplan` does."""

from fastplan.cli import main

main()
