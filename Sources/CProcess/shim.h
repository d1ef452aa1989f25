#ifndef APNS_WORKER_CPROCESS_SHIM_H
#define APNS_WORKER_CPROCESS_SHIM_H

#include <sys/prctl.h>

// prctl is variadic, which Swift cannot call.
static inline int cprocess_set_dumpable(unsigned long value) { return prctl(PR_SET_DUMPABLE, value, 0UL, 0UL, 0UL); }

#endif
