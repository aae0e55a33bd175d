/* SPDX-License-Identifier: MIT
 *
 * The two optional hooks between a user-space provider and an in-process device (DESIGN, "Four boundaries"). libuhca.so
 * exports them; a provider looks them up once per opened context with dlsym(RTLD_DEFAULT, ...) and works without them. Both may be
 * called from any thread and from signal handlers; both preserve errno.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "I just stored this doorbell": reg = the mapped UAR register that was written, value = the 64 bits as stored (memory
 * order read as a host integer). */
typedef void (*uhca_doorbell_hook_t)(volatile void* reg, uint64_t value);
#define UHCA_DOORBELL_HOOK "uhca_hook_doorbell"

/* "I polled this CQ and found it empty": lets the device run its receive side on this thread. 0: it had nothing to do, so the CQ is as
 * empty as before; else look again. */
typedef int (*uhca_poll_hook_t)(uint32_t cqn);
#define UHCA_POLL_HOOK "uhca_hook_polled_empty"

/* A provider that will call both hooks for everything that it does on this context (cmd_fd) says so once, after opening it:
 * the device then need not watch the context's doorbell pages. */
typedef void (*uhca_attach_hook_t)(int cmd_fd);
#define UHCA_ATTACH_HOOK "uhca_hook_attach"

#ifdef __cplusplus
}
#endif
