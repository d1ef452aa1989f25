#ifndef APNS_WORKER_CHIREDIS_SHIM_H
#define APNS_WORKER_CHIREDIS_SHIM_H

#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#include <stddef.h>
#include <string.h>

/// The reader's callbacks in one shape for hiredis 0.14 (array sizes are `int`) and 1.x (`size_t`, and RESP3 types).
typedef struct CHiredisVisitor {
    void (*string)(void *context, int type, const char *bytes, size_t length);
    void (*array)(void *context, size_t count);
    void (*integer)(void *context, long long value);
    void (*nil)(void *context);
} CHiredisVisitor;

/// The target of a reader's `privdata`.
typedef struct CHiredisVisit {
    CHiredisVisitor visitor;
    void *context;
} CHiredisVisit;

// For hiredis, a NULL object means "out of memory". The callbacks build no objects, so they return any other pointer.
#define CHIREDIS_VISITED ((void *)1)

static inline void *chiredis_visit_string(const redisReadTask *task, char *bytes, size_t length) {
    CHiredisVisit *visit = (CHiredisVisit *)task->privdata;
    visit->visitor.string(visit->context, task->type, bytes, length);
    return CHIREDIS_VISITED;
}

static inline void *chiredis_visit_integer(const redisReadTask *task, long long value) {
    CHiredisVisit *visit = (CHiredisVisit *)task->privdata;
    visit->visitor.integer(visit->context, value);
    return CHIREDIS_VISITED;
}

static inline void *chiredis_visit_nil(const redisReadTask *task) {
    CHiredisVisit *visit = (CHiredisVisit *)task->privdata;
    visit->visitor.nil(visit->context);
    return CHIREDIS_VISITED;
}

static inline void chiredis_visit_free(void *object) { (void)object; }

#if HIREDIS_MAJOR >= 1
static inline void *chiredis_visit_array(const redisReadTask *task, size_t count) {
    CHiredisVisit *visit = (CHiredisVisit *)task->privdata;
    visit->visitor.array(visit->context, count);
    return CHIREDIS_VISITED;
}

static inline void *chiredis_visit_double(const redisReadTask *task, double value, char *bytes, size_t length) {
    (void)value;
    return chiredis_visit_string(task, bytes, length);
}

static inline void *chiredis_visit_bool(const redisReadTask *task, int value) {
    return chiredis_visit_integer(task, value);
}
#else
static inline void *chiredis_visit_array(const redisReadTask *task, int count) {
    CHiredisVisit *visit = (CHiredisVisit *)task->privdata;
    visit->visitor.array(visit->context, (size_t)count);
    return CHIREDIS_VISITED;
}
#endif

// Initialised by the compiler, because readers are made on several event loops at once. hiredis requires a mutable pointer.
static redisReplyObjectFunctions chiredis_visit_functions = {
    .createString = chiredis_visit_string,
    .createArray = chiredis_visit_array,
    .createInteger = chiredis_visit_integer,
    .createNil = chiredis_visit_nil,
    .freeObject = chiredis_visit_free,
#if HIREDIS_MAJOR >= 1
    .createDouble = chiredis_visit_double,
    .createBool = chiredis_visit_bool,
#endif
};

/// A reader that reports each element of a reply, parents before children, to `visit` instead of building objects.
/// `visit` must outlive the reader. NULL when memory is short.
static inline redisReader *chiredis_reader_create(CHiredisVisit *visit) {
    redisReader *reader = redisReaderCreateWithFunctions(&chiredis_visit_functions);
    if (reader != NULL) {
        reader->privdata = visit;
    }
    return reader;
}

static inline const char *chiredis_reader_error(redisReader *reader) { return reader->errstr; }

#endif
