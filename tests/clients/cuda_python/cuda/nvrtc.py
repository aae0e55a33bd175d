# SPDX-License-Identifier: MIT
"""The compiler: the tests import it for the name of its errors."""
import enum


class nvrtcResult(enum.IntEnum):
    NVRTC_SUCCESS = 0


def nvrtcGetErrorString(error):
    return nvrtcResult.NVRTC_SUCCESS, error.name
