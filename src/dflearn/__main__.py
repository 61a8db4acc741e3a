"""`python -m dflearn` is the command `dfl`."""

from dflearn.cli import main

raise SystemExit(main())
