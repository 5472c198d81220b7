// What kernels on GPUs share: the stream of TensorFlow, pinned memory, and their registration.
#ifndef OPS_KERNELS_GPU_H_
#define OPS_KERNELS_GPU_H_

#include <cstdint>

#include "ops/cuda/functions.h"
#include "ops/kernels/status_convert.h"
#include "ops/staging/library.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "xla/stream_executor/stream.h"

namespace tf_strategies {

// The stream on which TensorFlow computes this kernel's inputs and uses its outputs.
inline absl::Status StreamOf(tensorflow::OpKernelContext* context, TfsStream* stream) {
  auto* const device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr) {
    return absl::InternalError("TensorFlow gives this kernel no stream of its GPU");
  }
  *stream = device->stream()->platform_specific_handle().stream;
  return absl::OkStatus();
}

// The stream, and the number of its device.
struct GpuPlace {
  TfsStream stream = nullptr;
  int device = 0;
};

inline absl::Status PlaceOf(tensorflow::OpKernelContext* context, GpuPlace* place) {
  TF_RETURN_IF_ERROR(StreamOf(context, &place->stream));
  return ToTensorFlow(
      StatusOfCuda(Cuda()->device_of_stream(place->stream, &place->device), "the device of a stream"));
}

// Memory of the host that copies on a stream may use while the host goes on.
inline absl::Status AllocatePinned(tensorflow::OpKernelContext* context, int64_t bytes,
                                   tensorflow::Tensor* memory) {
  tensorflow::AllocatorAttributes where;
  where.set_on_host(true);
  where.set_gpu_compatible(true);
  return context->allocate_temp(tensorflow::DT_UINT8, tensorflow::TensorShape({bytes}), memory, where);
}

// Registers a kernel now. The macro of TensorFlow would register it when the library is loaded, also where there is no GPU.
template <typename Kernel>
void RegisterOnGpu(tensorflow::KernelDefBuilder& builder, const char* name) {
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Device(tensorflow::DEVICE_GPU).Build(), name,
      [](tensorflow::OpKernelConstruction* construction) -> tensorflow::OpKernel* {
        return new Kernel(construction);
      });
}

// Each registers the kernels of its file, once. LoadCuda must have succeeded.
void RegisterAllReduceOnGpu();
void RegisterCompressionOnGpu();

}  // namespace tf_strategies

#endif  // OPS_KERNELS_GPU_H_
