// Takes the place of the C library's allocator in whatever program it is linked into, to count calls by thread. The C
// library's own is still behind it, under the names that glibc keeps for this.
#include "allocation_count.h"
#include <errno.h>
#include <stddef.h>

#ifdef __GLIBC__
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local uint64_t count;

void *malloc(size_t size) {
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count++;
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size) {
    count++;
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    count++;
    void *taken = __libc_memalign(alignment, size);
    if (!taken) return ENOMEM;
    *memory = taken;
    return 0;
}

uint64_t allocation_count(void) { return count; }
#else
uint64_t allocation_count(void) { return 0; }
#endif
