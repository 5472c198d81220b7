// The C interface of ledgers for the server's Python code (ctypes). All functions are thread-safe.
//
// Functions that return a text return its full length in bytes, and write at most `capacity` bytes of it,
// without a final zero. Functions that take the name of a ledger return -1 if this process has no such
// ledger.
#ifndef OPS_LEDGER_C_API_H_
#define OPS_LEDGER_C_API_H_

#include <stdint.h>

#ifndef TFS_EXPORT
#define TFS_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Returns the names of the ledgers of this process, one on each line.
TFS_EXPORT int64_t tfs_ledger_names(char* text, int64_t capacity);

// Returns a line for each worker, with its status, its incarnation and its name:
// "training 81985529216486895 worker 1 (10.0.0.2:2222)".
TFS_EXPORT int64_t tfs_ledger_members(const char* ledger, char* text, int64_t capacity);

// Declares the worker lost, ends all waits for it, and returns 1. Returns 0 if a process with another incarnation has
// replaced the worker, if it has finished, or if it was already lost.
TFS_EXPORT int tfs_ledger_mark_lost(const char* ledger, int worker, int64_t incarnation);

// Tells no worker to begin to apply a step until the ledger is released or rolled back. Returns 1 if no step is being
// applied, and 0 if one is; call it again then.
TFS_EXPORT int tfs_ledger_hold(const char* ledger);

// Ends what tfs_ledger_hold began. Returns 0.
TFS_EXPORT int tfs_ledger_release(const char* ledger);

#ifdef __cplusplus
}
#endif

#endif  // OPS_LEDGER_C_API_H_
