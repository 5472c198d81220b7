// The C interface of the core for Python (ctypes). All functions are thread-safe.
//
// Life of a communicator: `tfs_worker_open` opens UCX and yields this rank's wire address; the ranks exchange addresses (Python,
// over the TF_CONFIG addresses); `tfs_transport_of_worker` makes the transport of it, `tfs_transport_of_sockets` of connections
// that Python has made, or `tfs_transport_by_host` of both; `tfs_communicator_open` makes the communicator and starts its
// progress thread; ops name it by its id; `tfs_communicator_close` ends it.
// Functions that can fail return 0 or a Code of ops/base/status.h and leave the reason to `tfs_last_error` (per thread).
// Functions that yield text return its full length in bytes and write at most `capacity` of it, without a final zero;
// they return -1 when there is no communicator of that id (any more).
#ifndef OPS_COMMUNICATOR_C_API_H_
#define OPS_COMMUNICATOR_C_API_H_

#include <stdint.h>

#define TFS_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

TFS_EXPORT int64_t tfs_last_error(char* text, int64_t capacity);

// transports: what UCX may use ("" for its own choice, "tcp,self", ...); net_devices: on which interfaces ("" for all).
TFS_EXPORT int tfs_worker_open(const char* transports, const char* net_devices, int64_t* worker,
                               int* shares_memory);  // whether without a network on one host
TFS_EXPORT int64_t tfs_worker_address(int64_t worker, char* address, int64_t capacity);
TFS_EXPORT void tfs_worker_close(int64_t worker);  // of a worker that did not become a communicator

// Takes ownership of the worker, also on failure. addresses: the concatenation of all ranks' addresses, by
// rank; address_sizes: [size] bytes each; same_host: [size] 1 where the rank shares this rank's host.
TFS_EXPORT int tfs_transport_of_worker(int64_t worker, int rank, int size, const char* addresses,
                                       const int64_t* address_sizes, const uint8_t* same_host,
                                       int64_t* transport);

// Takes ownership of the sockets, also on failure. sockets: [size] TCP connections by rank, -1 for this rank. tls_folder: where
// ca.crt, task.crt and task.key are; "" for connections without TLS.
TFS_EXPORT int tfs_transport_of_sockets(int rank, int size, const int* sockets, const char* tls_folder,
                                        int64_t* transport);

// Takes the worker and the sockets over, also when it fails. sockets: [size] TCP connections to the ranks of other hosts, -1 for
// those of this one, which have addresses; addresses, address_sizes, tls_folder: as above, 0 bytes for a rank that has a socket.
TFS_EXPORT int tfs_transport_by_host(int64_t worker, int rank, int size, const char* addresses,
                                     const int64_t* address_sizes, const int* sockets, const char* tls_folder,
                                     int64_t* transport);

// Takes the transport over, also when it fails. ranks_per_host: the ranks of each host, which follow one another, or 1;
// ranks_here: those of this host; by_network: 1 where not all bytes go through shared memory, the same on all ranks, as is
// ranks_per_host; peer_names: the names of the ranks joined by '\n'; verdict_seconds: how long a failure waits for
// `tfs_communicator_abort`, after which it ends the collectives of this rank with its own cause.
TFS_EXPORT int tfs_communicator_open(int64_t transport, int ranks_per_host, int ranks_here, int by_network,
                                     const char* peer_names, const char* algorithm, int64_t chunk_bytes,
                                     double timeout_seconds, double verdict_seconds, int64_t* communicator);
TFS_EXPORT void tfs_communicator_close(int64_t communicator);

// Lets operations that were made for `former`, which is closed, use the communicator until it is closed, too.
TFS_EXPORT void tfs_communicator_also_call(int64_t former, int64_t communicator);

// code: a Code. Poisons the communicator; also the verdict on a suspicion.
TFS_EXPORT void tfs_communicator_abort(int64_t communicator, int code, const char* message);

// Waits up to timeout_ms for a failure. Returns 1 and sets the outputs if there is one (each is reported
// once), 0 if there is none, and -1 if no more failures will be reported. message_size: the full length of
// the message.
TFS_EXPORT int tfs_communicator_wait_failure(int64_t communicator, int timeout_ms, int* code, int* instance,
                                             int* peer, char* message, int64_t capacity,
                                             int64_t* message_size);

// Stops reporting failures.
TFS_EXPORT void tfs_communicator_end_failures(int64_t communicator);

TFS_EXPORT int64_t tfs_communicator_describe_instance(int64_t communicator, int instance, char* text,
                                                      int64_t capacity);

// The oldest outstanding collective; instance is -1 when there is none. `quiet` are the seconds since data last moved.
TFS_EXPORT int64_t tfs_communicator_oldest_waiting(int64_t communicator, int* instance, double* seconds,
                                                   double* quiet, char* text, int64_t capacity);

// A JSON object: {"transport", "bytes_sent", "bytes_received", "messages_sent", "messages_received",
// "bytes_staged", "seconds_outstanding", "collectives": [{"kind", "algorithm", "calls", "bytes", "seconds"}, ...], "connections":
// [{"peer", "messages", "bytes", "seconds"}, ...]}: seconds in which at least one collective was outstanding; bytes of payload,
// seconds from submission to completion, both summed over calls; connections: see ConnectionCounters.
TFS_EXPORT int64_t tfs_communicator_stats(int64_t communicator, char* json, int64_t capacity);

// The last collectives of this rank, the oldest first, as a JSON object: {"rank", "size", "monotonic_ns", "unix_ns",
// "collectives": [{"number", "kind", "name", "instance", "use", "algorithm", "dtype", "bytes", "submitted_ns", "started_ns",
// "ended_ns", "last_peer", "code"}, ...], "connections": as above}. monotonic_ns and unix_ns are the same moment on two clocks;
// the times of the collectives are on the first, 0 for what has not happened. use: of the instance, from 0, the same on all ranks;
// -1 before it starts. last_peer: the rank whose data arrived last, or -1. code: a Code.
TFS_EXPORT int64_t tfs_communicator_records(int64_t communicator, char* json, int64_t capacity);

#ifdef __cplusplus
}
#endif

#endif  // OPS_COMMUNICATOR_C_API_H_
