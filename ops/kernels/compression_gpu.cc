// TfStrategies>TopK, SumEntries, Quantize and SumQuantized for gradients of a GPU. What travels between workers, the messages,
// is in the memory of the host, where EncodeEntries writes and the collectives move them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/compress/entries.h"
#include "ops/compress/quantize.h"
#include "ops/kernels/dtype_convert.h"
#include "ops/kernels/gpu.h"
#include "ops/kernels/message_inputs.h"
#include "ops/kernels/quantize_inputs.h"
#include "ops/kernels/top_k_inputs.h"
#include "ops/staging/stager.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status Launched(TfsCudaError error, const char* what) {
  return ToTensorFlow(StatusOfCuda(error, what));
}

// Copies memory of the GPU.
absl::Status CopyOnGpu(const GpuPlace& place, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return Launched(Cuda()->copy(place.device, to, from, bytes, place.stream), "copying on the GPU");
}

// Copies `bytes` bytes from pinned memory to the GPU, and keeps the pinned memory meanwhile.
absl::Status CopyToGpu(const GpuPlace& place, void* to, const Tensor& pinned, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  Stager* stager = nullptr;
  TF_RETURN_IF_ERROR(ToTensorFlow(Stager::Of(place.stream, &stager)));
  return ToTensorFlow(
      stager->Copy(place.stream, {{to, pinned.data(), bytes}}, std::make_shared<Tensor>(pinned)));
}

// Always selects exactly k entries, which an estimated threshold allows.
class TopKOnGpuKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    int64_t k = 0;
    OP_REQUIRES_OK(context, ReadTopKInputs(context, &k));
    GpuPlace place;
    OP_REQUIRES_OK(context, PlaceOf(context, &place));
    const Tensor& gradient = context->input(0);
    const Tensor& residual = context->input(1);
    const int64_t count = gradient.NumElements();
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    Tensor* remaining = nullptr;
    Tensor workspace;
    const int64_t workspace_bytes = Cuda()->top_k_workspace_bytes(count);
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({k}), &indices));
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({k}), &values));
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({1}, 2, residual.shape(), &remaining));
    OP_REQUIRES_OK(context,
                   context->allocate_temp(tensorflow::DT_UINT8, TensorShape({workspace_bytes}), &workspace));
    if (!remaining->SharesBufferWith(residual)) {
      OP_REQUIRES_OK(context, CopyOnGpu(place, remaining->data(), residual.data(),
                                        static_cast<int64_t>(residual.TotalBytes())));
    }
    OP_REQUIRES_OK(context,
                   Launched(Cuda()->top_k(place.device, static_cast<int>(FromTensorFlow(gradient.dtype())),
                                          gradient.data(), remaining->flat<float>().data(), count, k,
                                          indices->flat<int64_t>().data(), values->flat<float>().data(),
                                          workspace.data(), workspace_bytes, place.stream),
                            "TopK on the GPU"));
  }
};

class SumEntriesOnGpuKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    SumInputs inputs;
    OP_REQUIRES_OK(context, ReadSumInputs(context, &inputs));
    GpuPlace place;
    OP_REQUIRES_OK(context, PlaceOf(context, &place));
    std::vector<compress::Selection> lists;
    OP_REQUIRES_OK(context,
                   ToTensorFlow(compress::ReadEntries(inputs.bytes, inputs.size, inputs.count, &lists)));
    std::vector<int64_t> ends;
    int64_t entries = 0;
    for (const compress::Selection& list : lists) {
      entries += static_cast<int64_t>(list.indices.size());
      ends.push_back(entries);
    }
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({inputs.count}), &sum));
    // All indices, then all values.
    const auto values_at = entries * static_cast<int64_t>(sizeof(int64_t));
    const int64_t bytes = values_at + entries * static_cast<int64_t>(sizeof(float));
    Tensor pinned, on_device;
    OP_REQUIRES_OK(context, AllocatePinned(context, bytes, &pinned));
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_UINT8, TensorShape({bytes}), &on_device));
    auto* index = static_cast<int64_t*>(pinned.data());
    auto* value = reinterpret_cast<float*>(static_cast<char*>(pinned.data()) + values_at);
    for (const compress::Selection& list : lists) {
      index = std::copy(list.indices.begin(), list.indices.end(), index);
      value = std::copy(list.values.begin(), list.values.end(), value);
    }
    OP_REQUIRES_OK(context, CopyToGpu(place, on_device.data(), pinned, bytes));
    char* const lists_on_device = static_cast<char*>(on_device.data());
    OP_REQUIRES_OK(context,
                   Launched(Cuda()->sum_lists(place.device, ends.data(), static_cast<int64_t>(ends.size()),
                                              reinterpret_cast<const int64_t*>(lists_on_device),
                                              reinterpret_cast<const float*>(lists_on_device + values_at),
                                              inputs.count, sum->flat<float>().data(), place.stream),
                            "SumEntries on the GPU"));
  }
};

class QuantizeOnGpuKernel final : public tensorflow::OpKernel {
 public:
  explicit QuantizeOnGpuKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, ReadQuantizeAttributes(construction, &method_, &bucket_));
  }

  void Compute(OpKernelContext* context) override {
    compress::Seed seed;
    OP_REQUIRES_OK(context, ReadQuantizeInputs(context, &seed));
    GpuPlace place;
    OP_REQUIRES_OK(context, PlaceOf(context, &place));
    const Tensor& gradient = context->input(0);
    const int64_t count = gradient.NumElements();
    Tensor* message = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(0, TensorShape({compress::QuantizedBytes(method_, count, bucket_)}),
                                          &message));
    const compress::Header header = compress::QuantizedHeader(method_, count, bucket_);
    uint8_t* const bytes = message->flat<uint8_t>().data();
    Tensor pinned;
    OP_REQUIRES_OK(context, AllocatePinned(context, sizeof(header), &pinned));
    std::memcpy(pinned.data(), &header, sizeof(header));
    OP_REQUIRES_OK(context, CopyToGpu(place, bytes, pinned, sizeof(header)));
    OP_REQUIRES_OK(context, Launched(Cuda()->quantize(place.device, static_cast<int>(method_),
                                                      gradient.flat<float>().data(), count, bucket_, seed.key,
                                                      seed.stream, bytes + sizeof(header), place.stream),
                                     "Quantize on the GPU"));
  }

 private:
  compress::Method method_ = compress::Method::kStochastic8;
  int64_t bucket_ = 0;
};

class SumQuantizedOnGpuKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    SumInputs inputs;
    OP_REQUIRES_OK(context, ReadSumInputs(context, &inputs));
    GpuPlace place;
    OP_REQUIRES_OK(context, PlaceOf(context, &place));
    std::vector<compress::Message> messages;
    OP_REQUIRES_OK(
        context, ToTensorFlow(compress::SplitQuantized(inputs.bytes, inputs.size, inputs.count, &messages)));
    Tensor pinned, on_device;
    Tensor* sum = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({inputs.count}), &sum));
    OP_REQUIRES_OK(context,
                   context->allocate_temp(tensorflow::DT_UINT8, TensorShape({inputs.size}), &on_device));
    OP_REQUIRES_OK(context, AllocatePinned(context, inputs.size, &pinned));
    if (inputs.size > 0) std::memcpy(pinned.data(), inputs.bytes, inputs.size);
    OP_REQUIRES_OK(context, CopyToGpu(place, on_device.data(), pinned, inputs.size));
    std::vector<int> methods;
    std::vector<int64_t> buckets;
    std::vector<const uint8_t*> bodies;
    for (const compress::Message& message : messages) {
      methods.push_back(message.header.form);
      buckets.push_back(message.header.bucket);
      bodies.push_back(on_device.flat<uint8_t>().data() + (message.body - inputs.bytes));
    }
    OP_REQUIRES_OK(context,
                   Launched(Cuda()->sum_bodies(place.device, methods.data(), buckets.data(), bodies.data(),
                                               static_cast<int64_t>(bodies.size()), inputs.count,
                                               sum->flat<float>().data(), place.stream),
                            "SumQuantized on the GPU"));
  }
};

}  // namespace

void RegisterCompressionOnGpu() {
  using tensorflow::KernelDefBuilder;
  RegisterOnGpu<TopKOnGpuKernel>(KernelDefBuilder("TfStrategies>TopK").HostMemory("k"), "TopKOnGpuKernel");
  RegisterOnGpu<SumEntriesOnGpuKernel>(
      KernelDefBuilder("TfStrategies>SumEntries").HostMemory("messages").HostMemory("count"),
      "SumEntriesOnGpuKernel");
  RegisterOnGpu<QuantizeOnGpuKernel>(KernelDefBuilder("TfStrategies>Quantize").HostMemory("seed"),
                                     "QuantizeOnGpuKernel");
  RegisterOnGpu<SumQuantizedOnGpuKernel>(
      KernelDefBuilder("TfStrategies>SumQuantized").HostMemory("messages").HostMemory("count"),
      "SumQuantizedOnGpuKernel");
}

}  // namespace tf_strategies
