// The channels' face towards Python (ctypes): plain C, integers and bytes. Everything here is thread-safe.
//
// A worker opens an end, sends its address to the server in the op TfStrategies>ChannelAccept, and connects with the address
// that comes back. Ops name the channel by its id, which differs on the two sides.
// Functions that can fail return 0 or a Code of ops/base/status.h and leave the reason to `tfs_last_error` (per thread).
// Functions that yield text return its full length in bytes and write at most `capacity` of it, without a final zero;
// they return -1 when there is no channel (or end) of that id (any more).
#ifndef OPS_CHANNEL_C_API_H_
#define OPS_CHANNEL_C_API_H_

#include <stdint.h>

#ifndef TFS_EXPORT
#define TFS_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Of a server: from now on it accepts channels. See Acceptance in ops/channel/end.h.
TFS_EXPORT void tfs_channel_prepare(const char* host, const char* net_devices);

// Of a worker. transports: values of UCX_TLS joined by '\n', to be tried in this order.
TFS_EXPORT int tfs_channel_open_end(const char* transports, const char* net_devices, int64_t* end);
TFS_EXPORT int64_t tfs_channel_end_address(int64_t end, char* address, int64_t capacity);
TFS_EXPORT void tfs_channel_close_end(int64_t end);  // of an end that did not become a channel

// Takes the end over, also when it fails. Waits until the server has been heard, timeout_seconds at most.
TFS_EXPORT int tfs_channel_connect(int64_t end, const char* server_address, int64_t server_address_size,
                                   int same_host, const char* my_name, const char* server_name,
                                   double timeout_seconds, int64_t* channel);

TFS_EXPORT void tfs_channel_close(int64_t channel);
TFS_EXPORT void tfs_channels_close_all(void);
TFS_EXPORT void tfs_channel_fail(int64_t channel, int code, const char* message);

// The Code with which the channel has ended and, as the last error, why; 0 while it is sound, -1 when there is none.
TFS_EXPORT int tfs_channel_status(int64_t channel);

// Writes at most `capacity` ids of the channels of this process whose other end has that name; returns how many there are.
TFS_EXPORT int64_t tfs_channels_to(const char* peer_name, int64_t* channels, int64_t capacity);

// A JSON object: {"transport", "bytes_sent", "bytes_received", "messages_sent", "messages_received", "tensors_sent",
// "tensors_received", "outstanding", "unclaimed"}.
TFS_EXPORT int64_t tfs_channel_stats(int64_t channel, char* json, int64_t capacity);

#ifdef __cplusplus
}
#endif

#endif  // OPS_CHANNEL_C_API_H_
