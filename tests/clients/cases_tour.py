# SPDX-License-Identifier: MIT
"""The tour (docs/tour) tells the truth: its commands run and show what the pages show, its links lead to files, its names are in them.

A page holds blocks of commands (```sh run) with what they print (```output) behind them. A line of the page matches a line of the output when
they are equal but for standalone numbers and GIDs; " ..." at the end of a line stands for its rest, a line "..." for any number of lines.
Errnos and return values must be equal. In links, [`name`](file) says that `name` occurs in that file.

    python3 tests/clients/cases_tour.py PAGE...      renews what no longer matches, in both languages; read the difference
"""
import glob
import os
import re
import subprocess
import sys

from rig import BUILD, require

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TOUR = os.path.join(ROOT, "docs", "tour")
BLOCK = re.compile(r"^```sh run\n(.*?)^```\n\n?```output\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"(?<![\w.])(?<!errno=)(?<!ret=)(?:0x[0-9a-f]+|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,}|[0-9a-f]{32}|\d+(?:\.\d+)?)(?![\w])")
WIDTH = 110


def pages():
    return sorted(glob.glob(os.path.join(TOUR, "*.md")) + glob.glob(os.path.join(TOUR, "zh", "*.md")))


def execute(command):
    env = dict(os.environ, PATH=":".join((os.path.join(BUILD, "bin"), os.path.join(BUILD, "bin", "clients"), os.environ["PATH"])))
    p = subprocess.run(["bash", "-c", command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=120)
    return p.stdout.rstrip("\n").split("\n")


def normal(line):
    return NUMBER.sub("#", " ".join(line.split()))


def line_matches(want, got):
    want, got = normal(want), normal(got)
    return got.startswith(want[:-4].rstrip()) if want.endswith(" ...") else got == want


def matches(want, got):
    """Whether the page's lines match the output's, "..." lines included."""
    if not want:
        return not got
    if want[0].strip() == "...":
        return any(matches(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and line_matches(want[0], got[0]) and matches(want[1:], got[1:])


def run_page(path):
    text = open(path).read()
    blocks = BLOCK.findall(text)
    require(len(blocks) == text.count("```sh run"), "a command without its output")
    require(blocks, "a page without a command")
    for command, want in blocks:
        got = execute(command)
        require(matches(want.rstrip("\n").split("\n"), got), "%s\nprints:\n%s\nthe page has:\n%s" % (command, "\n".join(got), want))


def check_links(path):
    text = open(path).read()
    links = 0
    for label, target in re.findall(r"\[([^\]]*)\]\(([^)#]+)[^)]*\)", text):
        if re.match(r"https?:", target):
            continue
        links += 1
        file = os.path.normpath(os.path.join(os.path.dirname(path), target))
        require(os.path.exists(file), "no file " + target)
        for name in re.findall(r"^`(\w[\w:]*)`$", label):
            require(re.search(r"\b%s\b" % re.escape(name.split("::")[-1]), open(file).read()), "%s is not in %s" % (name, target))
    require(links, "a page without links")


def chinese_has_the_same_commands():
    for path in glob.glob(os.path.join(TOUR, "zh", "[01]*.md")):
        english = os.path.join(TOUR, os.path.basename(path))
        require(os.path.exists(english), "no English page for " + path)
        require(BLOCK.findall(open(path).read()) == BLOCK.findall(open(english).read()), "%s: commands or outputs differ" % path)


def commands_of(readme):
    text = re.sub(r"^```.*?^```$", "", open(os.path.join(ROOT, readme)).read(), flags=re.M | re.S)
    return [line.split("#")[0].strip() for line in text.split("\n") if line.startswith("    ")]


def readme():
    require(commands_of("README.md"), "README.md has no commands")
    require(commands_of("README.md") == commands_of("README.zh.md"), "README.md and README.zh.md have different commands")
    blocks = [BLOCK.findall(open(os.path.join(ROOT, name)).read()) for name in ("README.md", "README.zh.md")]
    require(blocks[0] and blocks[0] == blocks[1], "README.md and README.zh.md show different commands or outputs")


def matching_rule():
    """A stale page fails."""
    got = ["a cmd CREATE_QP qpn=0x17 status=OK", "b ret=0", "c"]
    for want in (["a cmd CREATE_QP qpn=0x99 status=OK", "b ret=0", "c"], ["a cmd ...", "...", "c"], ["...", "b ret=0", "..."]):
        require(matches(want, got), "%s should match" % want)
    for want in (got[:2], got + ["d"], ["a cmd CREATE_CQ ...", "...", "c"], ["a cmd ...", "b ret=1", "c"], ["...", "c", "b ret=0"], []):
        require(not matches(want, got), "%s should not match" % want)


def register(runner):
    runner.case("tour matching rule", matching_rule)
    runner.case("tour README", readme)
    runner.case("tour README commands", run_page, os.path.join(ROOT, "README.md"))
    runner.case("tour README links", check_links, os.path.join(ROOT, "README.md"))
    runner.case("tour README.zh links", check_links, os.path.join(ROOT, "README.zh.md"))
    runner.case("tour Chinese", chinese_has_the_same_commands)
    for path in pages():
        name = os.path.relpath(path, TOUR)
        runner.case("tour %s links" % name, check_links, path)
        # Both languages have the same commands.
        if not name.startswith("zh/") and "```sh run" in open(path).read():
            runner.case("tour %s commands" % name, run_page, path)


def shorten(line, command):
    """Of a firmware command the page shows the first field: fields come and go with features."""
    line = re.sub(r"(\bstatus=OK +\w+=\S+) .*", r"\1 ...", line)
    if len(line) <= WIDTH or "explain-cqe" in command:
        return line.rstrip()
    return re.sub(r"\s+\S*$", "", line[:WIDTH]) + " ..."


def refresh(path):
    """Renews the outputs that no longer match, in the Chinese page as well."""
    def renew(m):
        got = execute(m[1])
        if matches(m[2].rstrip("\n").split("\n"), got):
            return m[0]
        return "```sh run\n%s```\n\n```output\n%s\n```" % (m[1], "\n".join(shorten(l, m[1]) for l in got))
    text = BLOCK.sub(renew, open(path).read())
    open(path, "w").write(text)
    chinese = os.path.join(os.path.dirname(path), "zh", os.path.basename(path))
    if os.path.exists(chinese):
        blocks = iter([m[0] for m in BLOCK.finditer(text)])
        translated = BLOCK.sub(lambda m: next(blocks, m[0]), open(chinese).read())
        open(chinese, "w").write(translated)


if __name__ == "__main__":
    for page in sys.argv[1:]:
        refresh(page)
