# SPDX-License-Identifier: MIT
"""Checks of captured RoCE frames that share no code with the product: ICRC by zlib, dissection by tshark."""
import struct
import subprocess
import zlib

from rig import Failure, require


def packets(path):
    with open(path, "rb") as f:
        head = f.read(24)
        require(len(head) == 24, path + ": no capture")
        endian = "<" if struct.unpack("<I", head[:4])[0] in (0xa1b2c3d4, 0xa1b23c4d) else ">"
        while True:
            record = f.read(16)
            if len(record) < 16:
                return
            caplen, length = struct.unpack(endian + "II", record[8:])
            data = f.read(caplen)
            require(caplen == length, "frame cut in the capture")
            yield data


def icrc_good(frame):
    """None: not RoCE."""
    ethertype, at = struct.unpack("!H", frame[12:14])[0], 14
    while ethertype == 0x8100:
        ethertype, at = struct.unpack("!H", frame[at + 2:at + 4])[0], at + 4
    packet = bytearray(frame[at:])
    if ethertype == 0x0800:
        ihl = (packet[0] & 15) * 4
        packet = packet[:struct.unpack("!H", packet[2:4])[0]]
        if packet[9] != 17:
            return None
        udp = ihl
        packet[1] = 0xff
        packet[8] = 0xff
        packet[10:12] = b"\xff\xff"
    elif ethertype == 0x86dd:
        packet = packet[:40 + struct.unpack("!H", packet[4:6])[0]]
        if packet[6] != 17:
            return None
        udp = 40
        packet[0] |= 0x0f
        packet[1:4] = b"\xff\xff\xff"
        packet[7] = 0xff
    elif ethertype == 0x8915:  # RoCE v1: the GRH lies as an IPv6 header does
        packet = packet[:40 + struct.unpack("!H", packet[4:6])[0]]
        if packet[6] != 0x1b:
            return None
        packet[0] |= 0x0f
        packet[1:4] = b"\xff\xff\xff"
        packet[7] = 0xff
        packet[40 + 4] = 0xff
        return sealed(packet)
    else:
        return None
    if struct.unpack("!H", packet[udp + 2:udp + 4])[0] != 4791:
        return None
    packet[udp + 6:udp + 8] = b"\xff\xff"
    packet[udp + 8 + 4] = 0xff
    return sealed(packet)


def sealed(packet):
    found = struct.unpack("<I", packet[-4:])[0]
    return found == zlib.crc32(b"\xff" * 8 + bytes(packet[:-4])) & 0xffffffff


def check(path):
    verdicts = [icrc_good(f) for f in packets(path)]
    good, bad = verdicts.count(True), verdicts.count(False)
    require(good > 0, path + ": no RoCE frame captured")
    require(bad == 0, "%d of %d frames have a wrong ICRC" % (bad, good + bad))
    r = subprocess.run(["tshark", "-r", path, "-Y", "_ws.malformed || _ws.expert.severity == error"], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True)
    if r.returncode != 0:
        raise Failure("tshark: " + r.stderr)
    require(not r.stdout.strip(), "tshark reports:\n" + r.stdout[:2000])
    named = subprocess.run(["tshark", "-r", path, "-Y", "infiniband.bth"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    require(len(named.splitlines()) == good, "tshark dissects %d of %d frames" % (len(named.splitlines()), good))
