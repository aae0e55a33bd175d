// SPDX-License-Identifier: MIT
// Signals of a process that has an instance: our fault handler stays in front, and no handler of the program runs inside our floors.
#pragma once

namespace uhca::sys {

// Takes over: called once, when the first instance of the process is built. Before, every signal call passes straight through.
void signals_activate();

}  // namespace uhca::sys
