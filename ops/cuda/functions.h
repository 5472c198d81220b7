// The interface of the CUDA library: a table of C functions. The other libraries see CUDA through this table only, so they
// are compiled without CUDA, and work where there is none. The table knows no TensorFlow: one CUDA library serves all
// versions of it.
#ifndef OPS_CUDA_FUNCTIONS_H_
#define OPS_CUDA_FUNCTIONS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The library exports `const TfsCudaFunctions* tfs_cuda_functions(int version)`, which returns null for another version.
#define TFS_CUDA_FUNCTIONS "tfs_cuda_functions"
enum { kTfsCudaVersion = 1 };

typedef void* TfsStream;  // a CUstream
typedef void* TfsEvent;   // a CUevent

// An error, or null. The text belongs to the library, and is valid until the next call of the same thread.
typedef const char* TfsCudaError;

// All functions are thread-safe. Except for `why_unusable`, they need a GPU. Each leaves the current device of the thread as it was.
typedef struct TfsCudaFunctions {
  // The reason why the library cannot use a GPU here, such as an old driver, or null.
  TfsCudaError (*why_unusable)(void);

  // The device of a stream. Streams, events and memory of other functions belong to one device.
  TfsCudaError (*device_of_stream)(TfsStream stream, int* device);

  // Makes a stream that does not wait for the default stream.
  TfsCudaError (*create_stream)(int device, TfsStream* stream);
  // Makes an event. A thread that waits for it sleeps.
  TfsCudaError (*create_event)(int device, TfsEvent* event);
  TfsCudaError (*record_event)(int device, TfsEvent event, TfsStream stream);
  // Lets later work of the stream wait for the event. Returns at once.
  TfsCudaError (*stream_waits)(int device, TfsStream stream, TfsEvent event);
  // Waits on the host.
  TfsCudaError (*host_waits)(int device, TfsEvent event);

  // Adds a copy to the stream. `to` and `from` are in the memory of the device or of the host. Returns at once if memory of
  // the host is pinned; otherwise, when `from` may change.
  TfsCudaError (*copy)(int device, void* to, const void* from, int64_t bytes, TfsStream stream);

  // The launchers of top_k.cuh, entries.cuh and quantize.cuh, for the device of the stream. dtype is a DType, method a
  // compress::Method.
  int64_t (*top_k_workspace_bytes)(int64_t count);
  TfsCudaError (*top_k)(int device, int dtype, const void* gradient, float* residual, int64_t count,
                        int64_t k, int64_t* indices, float* values, void* workspace, int64_t workspace_bytes,
                        TfsStream stream);
  TfsCudaError (*sum_lists)(int device, const int64_t* ends, int64_t lists, const int64_t* indices,
                            const float* values, int64_t count, float* sum, TfsStream stream);
  TfsCudaError (*quantize)(int device, int method, const float* gradient, int64_t count, int64_t bucket,
                           uint64_t seed, uint64_t stream_of_seed, uint8_t* body, TfsStream stream);
  // methods, buckets and bodies: [n] in host memory; the bodies are in the memory of the device.
  TfsCudaError (*sum_bodies)(int device, const int* methods, const int64_t* buckets,
                             const uint8_t* const* bodies, int64_t n, int64_t count, float* sum,
                             TfsStream stream);
} TfsCudaFunctions;

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // OPS_CUDA_FUNCTIONS_H_
