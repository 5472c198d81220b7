// The C functions by which Python switches on the kernels of GPUs. They return 0, or a Code whose message tfs_last_error has.

#include "ops/base/c_interface.h"
#include "ops/kernels/gpu.h"

using tf_strategies::Report;

extern "C" {

// Loads the CUDA library at `path`. Needs no GPU. Later calls do nothing.
__attribute__((visibility("default"))) int tfs_cuda_load(const char* path) {
  return Report(tf_strategies::LoadCuda(path));
}

// Finds out whether the loaded library can use a GPU with the driver of this machine.
__attribute__((visibility("default"))) int tfs_cuda_check() {
  return Report(tf_strategies::StatusOfCuda(tf_strategies::Cuda()->why_unusable(), "no GPU can be used"));
}

// Registers the kernels, which use the loaded library. Later calls do nothing.
__attribute__((visibility("default"))) void tfs_cuda_register_kernels() {
  static const bool registered = [] {
    tf_strategies::RegisterAllReduceOnGpu();
    tf_strategies::RegisterCompressionOnGpu();
    return true;
  }();
  (void)registered;
}

}  // extern "C"
