# SPDX-License-Identifier: MIT
"""Installation into a folder, and the Debian package: both run programs, and nothing of the system's is touched."""
import glob
import os
import re
import subprocess
import tempfile

from rig import BUILD, UHCA, require, sh


def run_from(prefix):
    out = sh(os.path.join(prefix, "bin", "uhca"), "run", "--", "ibv_devinfo")
    require("mlx5_0" in out and "PORT_ACTIVE" in out, out)


def only_private(files):
    """No library where the loader looks, nothing outside of what is ours."""
    own = re.compile(r"^(bin/uhca|lib/uhca/.*|share/man/man1/uhca\.1(\.gz)?|share/doc/uhca/.*)$")
    for f in files:
        require(own.match(f), "installs " + f)
    for wanted in ("bin/uhca", "lib/uhca/libuhca.so", "lib/uhca/libibverbs.so.1", "lib/uhca/libmlx5.so.1"):
        require(wanted in files, "%s is missing from:\n%s" % (wanted, "\n".join(files)))


def files_under(folder):
    return sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, fs in os.walk(folder) for f in fs)


def install():
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr"], env=dict(os.environ, DESTDIR=d), check=True, stdout=subprocess.DEVNULL)
        require(os.listdir(d) == ["usr"], "outside of the prefix: %s" % os.listdir(d))
        only_private(files_under(os.path.join(d, "usr")))
        run_from(os.path.join(d, "usr"))


def package():
    with tempfile.TemporaryDirectory() as d:
        sh("cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", d)
        debs = glob.glob(os.path.join(d, "uhca_*_amd64.deb"))
        require(len(debs) == 1, "packages: %s" % debs)
        sh("dpkg-deb", "-x", debs[0], os.path.join(d, "root"))
        only_private(files_under(os.path.join(d, "root", "usr")))
        run_from(os.path.join(d, "root", "usr"))
        for name in sh("dpkg-deb", "-f", debs[0], "Depends").strip().split(", "):
            sh("dpkg", "-s", name.split(" ")[0])


def manual():
    """Every option of every command is in the page."""
    page = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "man", "uhca.1")).read().replace("\\-", "-")
    options = 0
    for command in re.findall(r"^  ([a-z][a-z-]+) +[A-Z]", sh(UHCA, "--help"), re.M):
        require(re.search(r"^\.B %s$" % re.escape(command), page, re.M), "command %s is not in the page" % command)
        for option in re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", sh(UHCA, command, "--help"), re.M):
            options += 1
            require(option == "--help" or re.search(re.escape(option) + r"(?![a-z-])", page), "%s %s is not in the page" % (command, option))
    require(options > 12, "only %d options found" % options)


def register(runner):
    runner.case("make install", install)
    runner.case("Debian package", package)
    runner.case("manual page", manual)
