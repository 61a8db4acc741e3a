"""Why blocks cannot be used here: the reason that a layer tells before it goes on with the CPU."""


class NotHere(Exception):
    """The kernels cannot run: no compiler, too old a GPU, too large a program."""
