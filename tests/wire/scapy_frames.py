# SPDX-License-Identifier: MIT
"""Independent oracle: reads packets as JSON, one a line, and prints the frame that scapy builds for each, in hex."""
import json
import socket
import struct
import sys
import zlib

from scapy.contrib.roce import BTH, _bth_opcodes
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw


def extensions(k):
    """Extension headers from the name that scapy (or, for what it lacks, this script) gives the opcode; IBTA table 38."""
    op = k["opcode"]
    extra = {0x16: "SEND_LAST_WITH_INVALIDATE", 0x17: "SEND_ONLY_WITH_INVALIDATE"}
    if op >> 5 == 5:  # XRC: as RC, requests behind an XRCETH
        name = dict(_bth_opcodes).get(op & 31) or "RC_" + extra[op & 31]
    else:
        name = dict(_bth_opcodes).get(op) or "RC_" + extra[op]
    out = b""
    response = "RESPONSE" in name or "ACKNOWLEDGE" in name
    if op >> 5 == 5 and not response:
        out += struct.pack("!I", k["xrc_srq"])
    if name.startswith("UD_"):
        out += struct.pack("!II", k["qkey"], k["src_qp"])
    if "READ_REQUEST" in name or ("WRITE" in name and ("FIRST" in name or "ONLY" in name)):
        out += struct.pack("!QII", k["va"], k["rkey"], k["length"])
    if "COMPARE_SWAP" in name or "FETCH_ADD" in name:
        out += struct.pack("!QIQQ", k["va"], k["rkey"], k["swap"], k["compare"])
    if "ACKNOWLEDGE" in name or ("READ_RESPONSE" in name and "MIDDLE" not in name):
        out += struct.pack("!I", k["syndrome"] << 24 | k["msn"])
    if "ATOMIC_ACKNOWLEDGE" in name:
        out += struct.pack("!Q", k["atomic_ack"])
    if "IMMEDIATE" in name:
        out += struct.pack("!I", k["imm"])
    if "INVALIDATE" in name:
        out += struct.pack("!I", k["ieth"])
    if name == "CNP":
        out += bytes(16)
    return out


def icrc1(packet):
    """RoCE v1: of the packet from the GRH on, which lies as an IPv6 header does; no UDP."""
    b = bytearray(packet)
    b[0] |= 0x0F
    b[1:4] = b"\xff" * 3
    b[7] = 0xFF
    b[44] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(b)) & 0xFFFFFFFF)


def icrc6(packet):
    b = bytearray(packet)
    b[0] |= 0x0F
    b[1:4] = b"\xff" * 3
    b[7] = 0xFF
    b[46:48] = b"\xff\xff"
    b[52] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(b)) & 0xFFFFFFFF)


def build(k):
    payload = bytes.fromhex(k["payload"])
    pad = -len(payload) % 4
    bth = BTH(opcode=k["opcode"], solicited=k["solicited"], migreq=k["migreq"], padcount=pad, pkey=k["pkey"], fecn=k["fecn"],
              becn=k["becn"], dqpn=k["dqpn"], ackreq=k["ackreq"], psn=k["psn"])
    body = extensions(k) + payload + bytes(pad)
    eth = Ether(dst=k["dmac"], src=k["smac"])
    if k["vlan"] != 0xFFFF:
        eth = eth / Dot1Q(prio=k["vlan"] >> 13, id=k["vlan"] >> 12 & 1, vlan=k["vlan"] & 0xFFF)
    if k["v1"]:
        bth.icrc = 0
        transport = bytes(bth / Raw(body))[:-4] if body else bytes(bth)[:-4]  # BTH appends its ICRC last
        grh = struct.pack("!IHBB", 6 << 28 | k["tclass"] << 20 | k["flow"], len(transport) + 4, 27, k["hops"]) + \
            socket.inet_pton(socket.AF_INET6, k["src"]) + socket.inet_pton(socket.AF_INET6, k["dst"])
        (eth.lastlayer()).type = 0x8915
        return bytes(eth) + grh + transport + icrc1(grh + transport)
    udp = UDP(sport=k["sport"], dport=4791, chksum=0)
    if not k["ipv6"]:
        ip = IP(src=k["src"], dst=k["dst"], tos=k["tclass"], ttl=k["hops"], id=k["id"], flags="DF")
        return bytes(eth / ip / udp / bth / Raw(body)) if body else bytes(eth / ip / udp / bth)
    bth.icrc = 0
    ip = IPv6(src=k["src"], dst=k["dst"], tc=k["tclass"], hlim=k["hops"], fl=k["flow"])
    frame = bytes(eth / ip / udp / bth / Raw(body)) if body else bytes(eth / ip / udp / bth)
    at = 14 if k["vlan"] == 0xFFFF else 18
    return frame[:-4] + icrc6(frame[at:-4])


for line in sys.stdin:
    if line.strip():
        print(build(json.loads(line)).hex())
