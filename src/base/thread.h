// SPDX-License-Identifier: MIT
// Threads of ours in a foreign program.
#pragma once

#include <pthread.h>

namespace uhca {

// Such a thread runs none of the program's signal handlers (SIGSEGV and SIGBUS reach it: the copy fix-up works on every thread that drives
// the engine), and its stack has 256 KiB. `thread`: to be joined; nullptr: nobody waits for it. Returns 0, or the errno of pthread_create.
int start_thread(void* (*entry)(void*), void* argument, pthread_t* thread = nullptr);

}  // namespace uhca
