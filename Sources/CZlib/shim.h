#ifndef APNS_WORKER_CZLIB_SHIM_H
#define APNS_WORKER_CZLIB_SHIM_H

#include <zlib.h>

// inflateInit2 is a macro, which Swift cannot call. 15 is the largest window; 16 selects gzip's header and checksum.
static inline int czlib_inflate_init_gzip(z_stream *stream) { return inflateInit2(stream, 15 + 16); }

#endif
