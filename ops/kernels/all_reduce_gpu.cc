// TfStrategies>AllReduce for tensors of a GPU: they are staged through pinned memory of the host, where the group reduces
// them.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/gpu.h"
#include "ops/kernels/pack_layout.h"
#include "ops/staging/stager.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// What a collective uses until its last copy has ended.
struct StagedPack {
  Tensor host;                  // pinned
  int64_t bytes = 0;            // of all tensors
  std::vector<Tensor> tensors;  // inputs and outputs
  std::vector<Stager::Piece> to_host, to_device;
  std::vector<Communicator::Part> parts;
};

class AllReduceOnGpuKernel final : public CollectiveKernel {
 public:
  explicit AllReduceOnGpuKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, ReadReduction(construction, &op_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    auto pack = std::make_shared<StagedPack>();
    TfsStream stream = nullptr;
    Stager* stager = nullptr;
    const absl::Status begun = [&] {
      TF_RETURN_IF_ERROR(StreamOf(context, &stream));
      TF_RETURN_IF_ERROR(ToTensorFlow(Stager::Of(stream, &stager)));
      return LayOut(context, pack.get());
    }();
    if (!begun.ok()) return Refuse(context, communicator.get(), begun, done);
    communicator->CountStaged(pack->bytes);
    Communicator::Request request = MakeRequest();
    DescribePack(context, &request);
    request.parts = pack->parts;
    request.may_poll = false;  // packs behind this one wait for the stager's thread
    request.keep_alive = pack;
    const auto completion = Completion::Begin(context, label_, std::move(done));
    request.done = [stager, stream, pack, completion](const Status& reduced) {
      if (!reduced.ok()) return completion->End(ToTensorFlow(reduced));
      stager->ToDevice(stream, pack->to_device, pack, EndOf(completion));
    };
    // The kernel may go when the context ends, so the callbacks have copies of what they use.
    const auto submit =
        [communicator, completion, op = op_, label = label_, instance = request.instance,
         request = std::make_shared<Communicator::Request>(std::move(request))](const Status& copied) {
          if (copied.ok()) return communicator->AllReduce(op, std::move(*request));
          communicator->Report(instance, CannotBegin(label, ToTensorFlow(copied)));
          completion->End(ToTensorFlow(copied));
        };
    stager->ToHost(stream, pack->to_host, pack, submit);
  }

 private:
  static absl::Status LayOut(OpKernelContext* context, StagedPack* pack) {
    const PackLayout layout(context);
    const int64_t element_bytes = PackLayout::ElementBytes(context);
    int64_t bytes = layout.small_elements * element_bytes;
    for (const int i : layout.large) bytes += Aligned(context->input(i).TotalBytes());
    TF_RETURN_IF_ERROR(AllocatePinned(context, bytes, &pack->host));
    char* host = static_cast<char*>(pack->host.data());
    for (const int i : layout.large) {
      TF_RETURN_IF_ERROR(Stage(context, i, host, pack));
      const int64_t elements = context->input(i).NumElements();
      if (elements > 0) pack->parts.push_back({host, elements});
      host += Aligned(context->input(i).TotalBytes());
    }
    for (size_t j = 0; j < layout.small.size(); ++j) {
      char* const target = host + layout.begins[j] * element_bytes;
      layout.ClearRestOf(context, j, target);
      TF_RETURN_IF_ERROR(Stage(context, layout.small[j], target, pack));
    }
    if (layout.small_elements > 0) pack->parts.push_back({host, layout.small_elements});
    return absl::OkStatus();
  }

  static absl::Status Stage(OpKernelContext* context, int i, void* host, StagedPack* pack) {
    const Tensor& input = context->input(i);
    const auto bytes = static_cast<int64_t>(input.TotalBytes());
    Tensor* output = nullptr;  // in the memory of the input, if nothing else needs its value
    TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
    if (bytes == 0) return absl::OkStatus();
    pack->bytes += bytes;
    pack->to_host.push_back({input.data(), host, bytes});
    pack->to_device.push_back({output->data(), host, bytes});
    pack->tensors.push_back(input);
    pack->tensors.push_back(*output);
    return absl::OkStatus();
  }

  static int64_t Aligned(int64_t bytes) {
    constexpr int64_t kUnit = tensorflow::Allocator::kAllocatorAlignment;
    return (bytes + kUnit - 1) / kUnit * kUnit;
  }

  ReduceOp op_ = ReduceOp::kSum;
};

}  // namespace

void RegisterAllReduceOnGpu() {
  // Not int32: TensorFlow keeps such tensors in the memory of the host.
  RegisterOnGpu<AllReduceOnGpuKernel>(
      tensorflow::KernelDefBuilder("TfStrategies>AllReduce")
          .TypeConstraint("T", {tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE, tensorflow::DT_HALF,
                                tensorflow::DT_BFLOAT16, tensorflow::DT_INT64}),
      "AllReduceOnGpuKernel");
}

}  // namespace tf_strategies
