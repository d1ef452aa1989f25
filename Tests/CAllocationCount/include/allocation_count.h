#pragma once
#include <stdint.h>

/// How many times the calling thread has asked for memory since it started.
uint64_t allocation_count(void);
