# SPDX-License-Identifier: MIT
"""Unmodified programs over uhca: every cases_*.py beside this file. Usage: run.py [REGEX of case names]"""
import glob
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from rig import Runner  # noqa: E402


def main():
    runner = Runner(sys.argv[1] if len(sys.argv) > 1 else None)
    for path in sorted(glob.glob(os.path.join(HERE, "cases_*.py"))):
        topic = os.path.basename(path)[:-3]
        try:
            importlib.import_module(topic).register(runner)
        except Exception as e:  # the other topics still run
            runner.broken(topic, e)
    return runner.end()


if __name__ == "__main__":
    sys.exit(main())
