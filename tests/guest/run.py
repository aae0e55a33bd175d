# SPDX-License-Identifier: MIT
"""The stock Linux mlx5 driver in virtual machines on our HCA. Usage: run.py [--long] [REGEX of case names]"""
import signal
import sys

import machine  # noqa: F401: finds the clients' rig
import cases
from rig import Runner


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of the cases' ends, which take machines and servers along
    words = [w for w in sys.argv[1:] if w != "--long"]
    runner = Runner(words[0] if words else None)
    cases.register(runner, "--long" in sys.argv)
    return runner.end()


if __name__ == "__main__":
    sys.exit(main())
