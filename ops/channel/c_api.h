// The C interface of channels for Python (ctypes). All functions are thread-safe.
//
// A worker opens an end, sends its address to the server in the op TfStrategies>ChannelAccept, and connects
// with the address that comes back. Ops identify the channel by its id, which differs on the two ends. Functions
// that can fail return 0 or a Code of ops/base/status.h; `tfs_last_error` returns the reason (per thread).
// Functions that return a text return its full length in bytes, and write at most `capacity` bytes of it,
// without a final zero. They return -1 if there is no open channel (or end) with the id.
#ifndef OPS_CHANNEL_C_API_H_
#define OPS_CHANNEL_C_API_H_

#include <stdint.h>

#ifndef TFS_EXPORT
#define TFS_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Makes this process, a server, accept channels. See Acceptance in ops/channel/end.h.
TFS_EXPORT void tfs_channel_prepare(const char* host, const char* net_devices, const char* tls_folder);

// Gives this process, a server, the data connection of a worker. See OfferSocket in ops/channel/offered_sockets.h.
TFS_EXPORT void tfs_channel_offer_socket(const char* token, int64_t token_size, int socket);

// Opens a worker's end. transports: the values of UCX_TLS to try, in this order, joined by '\n'.
TFS_EXPORT int tfs_channel_open_end(const char* transports, const char* net_devices, int64_t* end);
TFS_EXPORT int64_t tfs_channel_end_address(int64_t end, char* address, int64_t capacity);
TFS_EXPORT void tfs_channel_close_end(int64_t end);  // for an end that did not become a channel

// Takes ownership of the end, also on failure. Waits for the server's first message, at most timeout_seconds.
TFS_EXPORT int tfs_channel_connect(int64_t end, const char* server_address, int64_t server_address_size,
                                   int same_host, const char* my_name, const char* server_name,
                                   double timeout_seconds, int64_t* channel);

// Makes a channel of a worker's data connection, which it takes over, also on failure. tls_folder: "" for no TLS.
TFS_EXPORT int tfs_channel_connect_socket(int socket, const char* tls_folder, const char* my_name,
                                          const char* server_name, double timeout_seconds, int64_t* channel);

TFS_EXPORT void tfs_channel_close(int64_t channel);
TFS_EXPORT void tfs_channels_close_all(void);
TFS_EXPORT void tfs_channel_fail(int64_t channel, int code, const char* message);

// Returns the Code with which the channel has failed, and makes the reason the last error. Returns 0 if it has not
// failed, and -1 if it does not exist.
TFS_EXPORT int tfs_channel_status(int64_t channel);

// Writes at most `capacity` ids of the channels of this process whose other end has this name. Returns the number of
// such channels.
TFS_EXPORT int64_t tfs_channels_to(const char* peer_name, int64_t* channels, int64_t capacity);

// Returns a JSON object: {"transport", "bytes_sent", "bytes_received", "messages_sent", "messages_received", "tensors_sent",
// "tensors_received", "outstanding", "unclaimed"}.
TFS_EXPORT int64_t tfs_channel_stats(int64_t channel, char* json, int64_t capacity);

#ifdef __cplusplus
}
#endif

#endif  // OPS_CHANNEL_C_API_H_
