# SPDX-License-Identifier: MIT
"""AMD's ROCm runtime, as Debian 13 ships it, on the simulated GPU (tests/rocm)."""
import os
import subprocess

from rig import BUILD, Place, finish, require

ROCM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rocm")
CACHE = os.environ.get("UHCA_ROCM_CACHE", os.path.join(os.path.expanduser("~"), ".cache", "uhca-rocm"))
LIBRARIES = os.path.join(CACHE, "root", "usr", "lib", "x86_64-linux-gnu")


def setup():
    return subprocess.run([os.path.join(ROCM, "setup")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def built():
    """The program, with Debian 13's loader and C library for it."""
    r = setup()
    require(r.returncode == 0, "tests/rocm/setup failed (the first time, it needs a network):\n" + r.stdout[-2000:])
    out = os.path.join(BUILD, "bin", "clients", "rocr")
    words = ["gcc", "-O1", "-D_GNU_SOURCE", "-o", out, os.path.join(ROCM, "rocr.c"), "-I" + os.path.join(CACHE, "root", "usr", "include"), "-L" + LIBRARIES,
             "-libverbs", "-lhsa-runtime64", "-pthread", "-Wl,--allow-shlib-undefined", "-Wl,--disable-new-dtags", "-Wl,-rpath," + LIBRARIES,
             "-Wl,--dynamic-linker," + os.path.join(LIBRARIES, "ld-linux-x86-64.so.2")]
    r = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    require(r.returncode == 0, r.stdout)
    return out


def rocr(bar):
    place = Place(gpu="amd,vram=256M,bar=" + bar)
    p = place.start(built(), str(place.gid_index()), bar)
    out = finish(p)
    require(p.returncode == 0, "status %d:\n%s" % (p.returncode, out))
    require("VRAM: exported, registered, written by the NIC, read back by the GPU" in out, out)


def register(runner):
    # As with the guest's packages: where no mirror has Debian 13, the short tests go without, and say so.
    if not os.environ.get("UHCA_LONG") and runner.wants("rocm unmodified ROCr, large BAR") and setup().returncode != 0:
        print("rocm: left out, its packages cannot be had here", flush=True)
        return
    runner.case("rocm unmodified ROCr, large BAR", rocr, "large")
    runner.case("rocm unmodified ROCr, small BAR", rocr, "small")
