#ifndef APNS_WORKER_CPROCESS_SHIM_H
#define APNS_WORKER_CPROCESS_SHIM_H

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// prctl is variadic, which Swift cannot call.
static inline int cprocess_set_dumpable(unsigned long value) { return prctl(PR_SET_DUMPABLE, value, 0UL, 0UL, 0UL); }

// Opens a file in memory (MFD_CLOEXEC). syscall is variadic, and memfd_create is hidden without _GNU_SOURCE.
static inline int cprocess_memory_file(const char *name) { return (int)syscall(SYS_memfd_create, name, 1U); }

#endif
