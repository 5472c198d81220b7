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

class AllGatherKernel final : public CollectiveKernel {
 public:
  explicit AllGatherKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {}

  // First the ranks learn each other's first dimensions, then the output can be allocated and filled: on a thread of
  // TensorFlow, not on the progress thread.
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    const Tensor& input = context->input(0);
    OP_REQUIRES_ASYNC(context, input.dims() >= 1,
                      absl::InvalidArgumentError(
                          absl::StrCat("all_gather '", label_, "' of a scalar: give it a dimension")),
                      done);
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
    request.done = [this, context, rows, done = std::move(done)](const Status& status) {
      context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
          [this, context, rows, status, done] { Gather(context, *rows, status, done); });
    };
    communicator->AllReduce(ReduceOp::kSum, std::move(request));
  }

 private:
  static TensorShape RowShape(const Tensor& tensor) {
    TensorShape shape = tensor.shape();
    shape.RemoveDim(0);
    return shape;
  }

  void Gather(OpKernelContext* context, const std::vector<int64_t>& rows, const Status& status,
              DoneCallback done) {
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(status), done);
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    const Tensor& input = context->input(0);
    const DType dtype = FromTensorFlow(input.dtype());
    const int64_t row_bytes = RowShape(input).num_elements() * tensorflow::DataTypeSize(input.dtype());
    const int64_t row_elements = row_bytes / static_cast<int64_t>(DTypeSize(dtype));
    std::vector<int64_t> offsets{0};
    int64_t total_rows = 0;
    const int64_t most_rows = std::numeric_limits<int64_t>::max() / std::max<int64_t>(row_bytes, 1);
    bool sound = rows[communicator->rank()] == input.dim_size(0);
    for (int64_t count : rows) {
      sound = sound && count >= 0 && count <= most_rows - total_rows;
      OP_REQUIRES_ASYNC(
          context, sound,
          absl::InternalError(absl::StrCat("all_gather '", label_, "': the workers' first dimensions ",
                                           "make no sense: one of them is ", count)),
          done);
      total_rows += count;
      offsets.push_back(total_rows * row_elements);
    }
    TensorShape shape = input.shape();
    shape.set_dim(0, total_rows);
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape, &output), done);
    const int64_t begin = offsets[communicator->rank()] * static_cast<int64_t>(DTypeSize(dtype));
    if (input.TotalBytes() > 0) {
      std::memcpy(static_cast<char*>(output->data()) + begin, input.data(), input.TotalBytes());
    }
    Communicator::Request request = MakeRequest();
    request.shape = tensorflow::DataTypeString(input.dtype()) + shape.DebugString();
    request.dtype = dtype;
    request.data = output->data();
    request.keep_alive = std::make_shared<Tensor>(*output);
    request.done = Finish(context, std::move(done));
    communicator->AllGather(std::move(offsets), std::move(request));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllGather").Device(tensorflow::DEVICE_CPU), AllGatherKernel);

}  // namespace
}  // namespace tf_strategies
