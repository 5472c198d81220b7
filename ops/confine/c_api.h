// The C interface for Python (ctypes). Returns 0 or a Code of ops/base/status.h; `tfs_last_error` returns the reason.
#ifndef OPS_CONFINE_C_API_H_
#define OPS_CONFINE_C_API_H_

#ifndef TFS_EXPORT
#define TFS_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// See ConfineToLoopback in ops/confine/confine.h. stop: another thread sets it to 1, a byte, to end the wait.
TFS_EXPORT int tfs_confine_to_loopback(int port, double seconds, const volatile unsigned char* stop);

// See ShutConnectionsFromElsewhere.
TFS_EXPORT void tfs_shut_connections_from_elsewhere(int port, double seconds);

#ifdef __cplusplus
}
#endif

#endif  // OPS_CONFINE_C_API_H_
