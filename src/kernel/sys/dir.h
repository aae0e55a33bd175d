// SPDX-License-Identifier: MIT
// Directory streams over the view, for the wrappers of dir.cpp and for the walkers (scandir, glob, nftw).
#pragma once

#include <dirent.h>
#include <sys/stat.h>

namespace uhca::sys {

// The wrappers' bodies: work on any stream and any path.
DIR* dir_open(const char* path);
dirent* dir_read(DIR* dir);
int dir_close(DIR* dir);

}  // namespace uhca::sys
