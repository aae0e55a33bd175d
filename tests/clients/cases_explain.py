# SPDX-License-Identifier: MIT
"""uhca explain-cqe: dumps as real drivers printed them (the last lines are those of four reports from real adapters)."""
import subprocess
import tempfile

from rig import UHCA, require

REPORTS = [
    ("00000000 93005204 0a0019a1 c0921cd2",
     "REQ_ERR (0xd): SEND on QP 0x19a1, WQE 0xc092: local protection error (IBV_WC_LOC_PROT_ERR, syndrome 0x04), vendor error 0x52, "
     "hardware syndrome 0x93 type 0x0"),
    ("00000000 00008813 10012abe 0dd0c1d3",
     "REQ_ERR (0xd): RDMA_READ on QP 0x12abe, WQE 0xdd0: remote access error (IBV_WC_REM_ACCESS_ERR, syndrome 0x13), vendor error 0x88"),
    ("00000000 00008a12 1002a8af 0001a2d2",
     "REQ_ERR (0xd): RDMA_READ on QP 0x2a8af, WQE 0x1: remote invalid request (IBV_WC_REM_INV_REQ_ERR, syndrome 0x12), vendor error 0x8a"),
    ("00000000 00008813 08006214 0000f6d2",
     "REQ_ERR (0xd): RDMA_WRITE on QP 0x6214, WQE 0x0: remote access error (IBV_WC_REM_ACCESS_ERR, syndrome 0x13), vendor error 0x88"),
]
ZERO = "00000000 00000000 00000000 00000000"


def explain(*words, stdin="", status=0):
    r = subprocess.run([UHCA, "explain-cqe", *words], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    require(r.returncode == status, "exit status %d:\n%s%s" % (r.returncode, r.stdout, r.stderr))
    return [l for l in r.stdout.splitlines() if not l.startswith("  ")], r.stdout, r.stderr


def says(got, want):
    require(got == want, "got:\n%s\nwant:\n%s" % ("\n".join(got), "\n".join(want)))


def arguments():
    for line, sentence in REPORTS:
        says(explain(*line.split())[0], [sentence])
        says(explain(line)[0], [sentence])
    out = explain(REPORTS[1][0])[1]
    require("rkey" in out, "no cause:\n" + out)


def provider_dump():
    text = "".join("mlx5: host7: got completion with error:\n%s\n%s\n%s\n%s\n" % (ZERO, ZERO, ZERO, last) for last, _ in REPORTS)
    says(explain(stdin=text)[0], [s for _, s in REPORTS])
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(text)
        f.flush()
        says(explain(f.name)[0], [s for _, s in REPORTS])


def kernel_dump():
    def hexdump(prefix):
        text = ""
        for last, _ in REPORTS:
            for i, row in enumerate([ZERO, ZERO, ZERO, last]):
                digits = row.replace(" ", "")
                text += "%s%08x: %s\n" % (prefix, 16 * i, " ".join(digits[b:b + 2] for b in range(0, 32, 2)))
        return text
    says(explain(stdin=hexdump("[ 1234.567890] cqe_dump: "))[0], [s for _, s in REPORTS])
    says(explain(stdin=hexdump("[ 1234.567890] "))[0], [s for _, s in REPORTS])
    old = "".join("mlx5_0:dump_cqe:272:(pid 9216): %s\n" % row for last, _ in REPORTS for row in (ZERO, ZERO, ZERO, last))
    says(explain(stdin=old)[0], [s for _, s in REPORTS])
    # Last lines put together, without the rest of each CQE.
    says(explain(stdin="\n".join(l for l, _ in REPORTS))[0], [s for _, s in REPORTS])


def others():
    says(explain(ZERO + " 00000000 00000000 00000009 00000000 " + ZERO + " 00000000 0000f905 000000c7 000314e2")[0],
         ["RESP_ERR (0xe): receive on QP 0xc7, WQE 0x3: flushed (IBV_WC_WR_FLUSH_ERR, syndrome 0x05), vendor error 0xf9"])
    says(explain("00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000000 00000000 00000000 "
                 "00000000 0000d501 000000c7 000314e2")[0],
         ["RESP_ERR (0xe): receive on QP 0xc7, WQE 0x3: local length error (IBV_WC_LOC_LEN_ERR, syndrome 0x01), vendor error 0xd5, "
          "SRQ or user index 0x7"])
    says(explain("00000000 00007733 0a0000c7 000314d2")[0],
         ["REQ_ERR (0xd): SEND on QP 0xc7, WQE 0x3: unknown error (IBV_WC_GENERAL_ERR, syndrome 0x33), vendor error 0x77"])
    says(explain("00000000 00000000 0a0000c7 00031400")[0], ["REQ (0x0): SEND on QP 0xc7, WQE 0x3: completed"])
    require("no CQE found" in explain("hello", status=1)[2], "refusal without a reason")
    require("no CQE found" in explain(stdin="", status=1)[2], "refusal without a reason")


def layout():
    def run(*words):
        r = subprocess.run([UHCA, "layout", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return r.returncode, r.stdout, r.stderr
    status, out, _ = run("cqe64")
    require(status == 0 and out.startswith("cqe64: 64 bytes\n"), out)
    for field in ("0x003c   [31:16]  wqe_counter", "0x003c     [7:4]  opcode", "0x003c       [0]  owner", "0x0030       8 B  timestamp"):
        require("  " + field + "\n" in out, "no '%s' in:\n%s" % (field, out))
    require("0x0020     [7:0]" not in run("wqe_av")[1] and "rgid x 16" in run("wqe_av")[1], "an array is not shown as one")
    require("qpc\n" in run()[1], "the list lacks qpc")
    status, _, err = run("nothing")
    require(status == 1 and "no structure nothing" in err, "refusal without a reason: " + err)


def register(runner):
    runner.case("layout", layout)
    runner.case("explain-cqe arguments", arguments)
    runner.case("explain-cqe libmlx5's dump", provider_dump)
    runner.case("explain-cqe the kernel's dump", kernel_dump)
    runner.case("explain-cqe others", others)
