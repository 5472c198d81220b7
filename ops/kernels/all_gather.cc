// TfStrategies>AllGather: concatenates the ranks' tensors along axis 0; their first dimensions may differ.

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/dtype_convert.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>AllGather")
    .Input("tensor: T")
    .Output("gathered: T")
    .Attr("T: {numbertype, bool}")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &shape));
      if (context->RankKnown(shape)) {
        TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
      }
      context->set_output(0, shape);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Concatenates the tensors of all ranks along axis 0, by rank.

tensor: At least one dimension; all dimensions but the first, and the dtype, agree between the ranks.
gathered: The concatenation, the same on every rank.
communicator: Its id.
instance: Names this collective, and instance + 1 the exchange of the first dimensions.
label: For messages.
)doc");

TensorShape RowShape(const Tensor& tensor) {
  TensorShape shape = tensor.shape();
  shape.RemoveDim(0);
  return shape;
}

class AllGatherKernel final : public CollectiveKernel {
 public:
  explicit AllGatherKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {}

  // First the ranks learn each other's first dimensions, then the output can be allocated and filled: on a thread of
  // TensorFlow, not on the progress thread.
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    const Tensor& input = context->input(0);
    if (input.dims() < 1) {
      const absl::Status scalar = absl::InvalidArgumentError(
          absl::StrCat("all_gather '", label_, "' of a scalar: give it a dimension"));
      return Refuse(context, communicator.get(), scalar, done);
    }
    auto rows = std::make_shared<std::vector<int64_t>>(communicator->size(), 0);
    (*rows)[communicator->rank()] = input.dim_size(0);
    Communicator::Request request = MakeRequest();
    request.instance += 1;
    request.name += " (first dimensions)";
    request.shape = RowShape(input).DebugString() + " rows of " + tensorflow::DataTypeString(input.dtype());
    request.dtype = DType::kInt64;
    request.data = rows->data();
    request.count = static_cast<int64_t>(rows->size());
    request.keep_alive = rows;
    Second second{communicator_, MakeRequest(), input, rows, nullptr};
    auto* const threads = context->device()->tensorflow_cpu_worker_threads()->workers;
    second.completion = Completion::Begin(context, label_, std::move(done));
    request.done = [second = std::move(second), threads](const Status& status) {
      threads->Schedule([second, status] { Gather(second, status); });
    };
    communicator->AllReduce(ReduceOp::kSum, std::move(request));
  }

 private:
  // What the second part needs, also when the kernel has been cancelled meanwhile.
  struct Second {
    int64_t communicator;
    Communicator::Request request;
    Tensor input;
    std::shared_ptr<std::vector<int64_t>> rows;
    std::shared_ptr<Completion> completion;
  };

  static void Gather(const Second& second, const Status& status) {
    if (!status.ok()) return second.completion->End(ToTensorFlow(status));
    const auto communicator = FindCommunicator(second.communicator);
    if (communicator == nullptr) {
      return second.completion->End(absl::CancelledError("the communicator was closed during an all_gather"));
    }
    const absl::Status begun = Begin(second, communicator.get());
    if (begun.ok()) return;
    communicator->Report(second.request.instance, CannotBegin(second.request.name, begun));
    second.completion->End(begun);
  }

  static absl::Status Begin(const Second& second, Communicator* communicator) {
    const Tensor& input = second.input;
    const DType dtype = FromTensorFlow(input.dtype());
    const int64_t element_bytes = static_cast<int64_t>(DTypeSize(dtype));
    const int64_t row_bytes = RowShape(input).num_elements() * tensorflow::DataTypeSize(input.dtype());
    std::vector<int64_t> offsets{0};
    int64_t total_rows = 0;
    const int64_t most_rows = std::numeric_limits<int64_t>::max() / std::max<int64_t>(row_bytes, 1);
    for (int64_t count : *second.rows) {
      if (count < 0 || count > most_rows - total_rows) {
        return absl::InternalError(
            absl::StrCat("all_gather '", second.request.name,
                         "': the workers' first dimensions make no sense: one of them is ", count));
      }
      total_rows += count;
      offsets.push_back(total_rows * (row_bytes / element_bytes));
    }
    TensorShape shape = input.shape();
    shape.set_dim(0, total_rows);
    auto output = std::make_shared<Tensor>();
    TF_RETURN_IF_ERROR(Allocate(second.completion.get(), input.dtype(), shape, output.get()));
    const int64_t begin = offsets[communicator->rank()] * element_bytes;
    if (input.TotalBytes() > 0) {
      std::memcpy(static_cast<char*>(output->data()) + begin, input.data(), input.TotalBytes());
    }
    Communicator::Request request = second.request;
    request.shape = tensorflow::DataTypeString(input.dtype()) + shape.DebugString();
    request.dtype = dtype;
    request.data = output->data();
    request.keep_alive = std::move(output);
    request.done = EndOf(second.completion);
    communicator->AllGather(std::move(offsets), std::move(request));
    return absl::OkStatus();
  }

  // The kernel's output, or memory that only the peers need when the kernel has ended.
  static absl::Status Allocate(Completion* completion, tensorflow::DataType dtype, const TensorShape& shape,
                               Tensor* output) {
    absl::Status allocated;
    const bool running = completion->WithContext([&](OpKernelContext* context) {
      Tensor* made = nullptr;
      allocated = context->allocate_output(0, shape, &made);
      if (allocated.ok()) *output = *made;
    });
    if (running) return allocated;
    *output = Tensor(dtype, shape);
    return output->IsInitialized() ? absl::OkStatus()
                                   : absl::ResourceExhaustedError("memory ran out: " + shape.DebugString());
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllGather").Device(tensorflow::DEVICE_CPU), AllGatherKernel);

}  // namespace
}  // namespace tf_strategies
