"""Signals as a program finds them when it is started from a terminal."""

import signal


def restore_defaults():
    """For `preexec_fn`: what nohup and background jobs of a shell have ignored is not inherited."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
