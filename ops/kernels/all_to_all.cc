// TfStrategies>AllToAll: each rank sends some rows of its tensor to each rank.

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
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
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>AllToAll")
    .Input("tensor: T")
    .Input("lengths: int64")
    .Output("received: T")
    .Output("received_lengths: int64")
    .Attr("T: {numbertype, bool}")
    .Attr("communicator: int")
    .Attr("instance: int >= 0")
    .Attr("label: string")
    .Attr("layout: string = ''")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle shape, lengths;
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 1, &shape));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 1, &lengths));
      if (context->RankKnown(shape)) {
        TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
      }
      context->set_output(0, shape);
      context->set_output(1, lengths);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Sends some rows of a tensor to each rank, itself included, and joins what the ranks send to this one.

tensor: [m, ...], for rank 0 first; all dimensions but the first, and the dtype, agree between the ranks.
lengths: [size], how many rows each rank gets; they add up to m.
received: What the ranks have sent to this one, concatenated along axis 0 by rank.
received_lengths: [size], how many rows each of them sent.
communicator: Its id.
instance: Names this collective, and instance + 1 the exchange of the lengths.
label: For messages.
layout: How the elements are to be read; must agree.
)doc");

absl::Status CheckLengths(const Tensor& tensor, const Tensor& lengths, int size) {
  if (tensor.dims() < 1) return absl::InvalidArgumentError("tensor is a scalar: give it a dimension");
  if (lengths.shape() != TensorShape({size})) {
    return absl::InvalidArgumentError(absl::StrCat("lengths must have one entry for each of ", size,
                                                   " workers; got shape ", lengths.shape().DebugString()));
  }
  const int64_t rows = tensor.dim_size(0);
  int64_t left = rows;
  for (int rank = 0; rank < size; ++rank) {
    const int64_t length = lengths.flat<int64_t>()(rank);
    if (length < 0 || length > left) {
      return absl::InvalidArgumentError(absl::StrCat("lengths must add up to the first dimension of tensor, ",
                                                     rows, "; lengths[", rank, "] is ", length, ", after ",
                                                     rows - left));
    }
    left -= length;
  }
  if (left == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lengths must add up to the first dimension of tensor, ",
                                                 rows, "; they add up to ", rows - left));
}

class AllToAllKernel final : public CollectiveKernel {
 public:
  explicit AllToAllKernel(OpKernelConstruction* construction) : CollectiveKernel(construction) {}

  // The ranks first exchange the numbers of rows. Then the output is allocated and filled, on a thread of
  // TensorFlow and not on the progress thread.
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto communicator = GetCommunicator(context);
    if (communicator == nullptr) return done();
    const int size = communicator->size();
    const Tensor& input = context->input(0);
    const absl::Status checked = CheckLengths(input, context->input(1), size);
    if (!checked.ok()) {
      const absl::Status why =
          absl::InvalidArgumentError(absl::StrCat("all_to_all '", label_, "': ", checked.message()));
      return Refuse(context, communicator.get(), why, done);
    }
    auto lengths = std::make_shared<Lengths>();
    const int64_t* const sends = context->input(1).flat<int64_t>().data();
    lengths->sends.assign(sends, sends + size);
    lengths->receives.resize(size);
    lengths->receives[communicator->rank()] = sends[communicator->rank()];
    Communicator::Request request = MakeRequest();
    request.instance += 1;
    request.name += " (lengths)";
    request.shape = DescribeRows(input);
    request.dtype = DType::kInt64;
    request.data = lengths->receives.data();
    request.source = lengths->sends.data();
    request.keep_alive = lengths;
    request.done = Then(context, {"all_to_all", communicator_, MakeRequest(),
                                  Completion::Begin(context, label_, std::move(done)),
                                  [input, lengths](const SecondPart& second, Communicator* communicator) {
                                    return Begin(second, input, *lengths, communicator);
                                  }});
    std::vector<int64_t> one_each(size + 1);
    std::iota(one_each.begin(), one_each.end(), 0);
    communicator->AllToAll(one_each, one_each, std::move(request));
  }

 private:
  struct Lengths {  // in rows, by rank
    std::vector<int64_t> sends, receives;
  };

  struct Buffers {
    Tensor input, received;
  };

  static absl::Status Begin(const SecondPart& second, const Tensor& input, const Lengths& lengths,
                            Communicator* communicator) {
    const int rank = communicator->rank();
    const std::string what = second.Describe();
    JoinedRows sends, receives;
    TF_RETURN_IF_ERROR(JoinRows(what, input, lengths.sends, &sends));
    TF_RETURN_IF_ERROR(JoinRows(what, input, lengths.receives, &receives));
    Completion* const completion = second.completion.get();
    Tensor received_lengths;
    TF_RETURN_IF_ERROR(AllocateOutput(completion, 1, tensorflow::DT_INT64,
                                      TensorShape({communicator->size()}), &received_lengths));
    std::copy(lengths.receives.begin(), lengths.receives.end(), received_lengths.flat<int64_t>().data());
    auto buffers = std::make_shared<Buffers>();
    buffers->input = input;
    TF_RETURN_IF_ERROR(AllocateOutput(completion, 0, input.dtype(), receives.shape, &buffers->received));
    const DType dtype = FromTensorFlow(input.dtype());
    const auto element_bytes = static_cast<int64_t>(DTypeSize(dtype));
    const char* const source = static_cast<const char*>(input.data());
    char* const data = static_cast<char*>(buffers->received.data());
    const int64_t own = (sends.offsets[rank + 1] - sends.offsets[rank]) * element_bytes;
    if (own > 0) {
      std::memcpy(data + receives.offsets[rank] * element_bytes, source + sends.offsets[rank] * element_bytes,
                  own);
    }
    Communicator::Request request = second.request;
    request.shape = DescribeRows(input);
    request.dtype = dtype;
    request.data = data;
    request.source = source;
    request.keep_alive = std::move(buffers);
    request.done = EndOf(second.completion);
    communicator->AllToAll(std::move(sends.offsets), std::move(receives.offsets), std::move(request));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>AllToAll").Device(tensorflow::DEVICE_CPU), AllToAllKernel);

}  // namespace
}  // namespace tf_strategies
