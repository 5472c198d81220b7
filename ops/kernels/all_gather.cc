// TfStrategies>AllGather: concatenates the ranks' tensors along axis 0; their first dimensions may differ.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/dtype_convert.h"
#include "ops/kernels/rows.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("TfStrategies>AllGather")
    .Input("tensor: T")
    .Output("gathered: T")
    .Attr("T: {numbertype, bool}")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .Attr("layout: string = ''")
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
layout: How the elements are to be read; must agree.
)doc");

class AllGatherKernel final : public CollectiveKernel {
 public:
  explicit AllGatherKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {}

  // The ranks first exchange their first dimensions. Then the output is allocated and filled, on a thread of
  // TensorFlow and not on the progress thread.
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
    request.shape = DescribeRows(input);
    request.dtype = DType::kInt64;
    request.data = rows->data();
    request.count = static_cast<int64_t>(rows->size());
    request.keep_alive = rows;
    request.done = Then(context, {"all_gather", communicator_, MakeRequest(),
                                  Completion::Begin(context, label_, std::move(done)),
                                  [input, rows](const SecondPart& second, Communicator* communicator) {
                                    return Begin(second, input, *rows, communicator);
                                  }});
    communicator->AllReduce(ReduceOp::kSum, std::move(request));
  }

 private:
  static absl::Status Begin(const SecondPart& second, const Tensor& input, const std::vector<int64_t>& rows,
                            Communicator* communicator) {
    const DType dtype = FromTensorFlow(input.dtype());
    JoinedRows joined;
    TF_RETURN_IF_ERROR(JoinRows(second.Describe(), input, rows, &joined));
    auto output = std::make_shared<Tensor>();
    TF_RETURN_IF_ERROR(AllocateOutput(second.completion.get(), 0, input.dtype(), joined.shape, output.get()));
    const int64_t begin = joined.offsets[communicator->rank()] * static_cast<int64_t>(DTypeSize(dtype));
    if (input.TotalBytes() > 0) {
      std::memcpy(static_cast<char*>(output->data()) + begin, input.data(), input.TotalBytes());
    }
    Communicator::Request request = second.request;
    request.shape = tensorflow::DataTypeString(input.dtype()) + joined.shape.DebugString();
    request.dtype = dtype;
    request.data = output->data();
    request.keep_alive = std::move(output);
    request.done = EndOf(second.completion);
    communicator->AllGather(std::move(joined.offsets), std::move(request));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllGather").Device(tensorflow::DEVICE_CPU), AllGatherKernel);

}  // namespace
}  // namespace tf_strategies
