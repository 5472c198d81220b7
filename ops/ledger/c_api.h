// The ledgers' face towards the server's own Python (ctypes): plain C. Everything here is thread-safe.
//
// Functions that yield text return its full length in bytes and write at most `capacity` of it, without a final zero. Whatever
// takes the name of a ledger returns -1 when this process has none of that name.
#ifndef OPS_LEDGER_C_API_H_
#define OPS_LEDGER_C_API_H_

#include <stdint.h>

#ifndef TFS_EXPORT
#define TFS_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The names, one a line.
TFS_EXPORT int64_t tfs_ledger_names(char* text, int64_t capacity);

// A line for each worker: its status, its incarnation, its name. "training 81985529216486895 worker 1 (10.0.0.2:2222)".
TFS_EXPORT int64_t tfs_ledger_members(const char* ledger, char* text, int64_t capacity);

// Declares the worker dead and wakes what waits for it. Returns 1, or 0 when it is another process by now (another incarnation), or has
// finished, or is lost already.
TFS_EXPORT int tfs_ledger_mark_lost(const char* ledger, int worker, int64_t incarnation);

#ifdef __cplusplus
}
#endif

#endif  // OPS_LEDGER_C_API_H_
