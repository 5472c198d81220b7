// TfStrategies>EncodeEntries, EncodeRegions, SumEntries, MergeEntries: encode selected entries of a gradient
// as one message, and add up such messages.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/compress/entries.h"
#include "ops/kernels/message_inputs.h"
#include "ops/kernels/on_pool.h"
#include "ops/kernels/status_convert.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/denormal.h"

namespace tf_strategies {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfStrategies>EncodeEntries")
    .Input("indices: int64")
    .Input("values: float")
    .Input("count: int64")
    .Output("message: uint8")
    .Output("sent: float")
    .Attr("value_format: {'float32', 'float16', 'int8'} = 'float32'")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle entries, scalar;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &entries));
      TF_RETURN_IF_ERROR(context->WithRank(entries, 1, &entries));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(2), 0, &scalar));
      context->set_output(0, context->Vector(context->UnknownDim()));
      context->set_output(1, entries);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Writes k entries of a vector as one message. Its length is written in it, so that messages can be read one after another.

indices: [k], strictly ascending, from 0 up to count - 1.
values: [k], the elements there.
count: Elements of the vector.
message: [m]: the indices as bit-packed gaps or as a bitmap, whichever is shorter, then the values.
sent: [k], the values as every reader of the message sees them.
value_format: 'float16': halves, rounded to nearest even, times one power of two for the message, so that none overflows. 'int8':
  multiples of one scale for every 256 values, to nearest. What is not finite stays not finite.
)doc");

REGISTER_OP("TfStrategies>EncodeRegions")
    .Input("indices: int64")
    .Input("values: float")
    .Input("offsets: int64")
    .Output("messages: uint8")
    .Output("lengths: int64")
    .Output("sent: float")
    .Attr("value_format: {'float32', 'float16', 'int8'} = 'float32'")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle entries, offsets;
      tensorflow::shape_inference::DimensionHandle regions;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &entries));
      TF_RETURN_IF_ERROR(context->WithRank(entries, 1, &entries));
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(2), 1, &offsets));
      TF_RETURN_IF_ERROR(context->WithRank(offsets, 1, &offsets));
      TF_RETURN_IF_ERROR(context->Subtract(context->Dim(offsets, 0), 1, &regions));
      context->set_output(0, context->Vector(context->UnknownDim()));
      context->set_output(1, context->Vector(regions));
      context->set_output(2, entries);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Writes k entries of a vector as one message for each of some regions of it, as EncodeEntries does for the whole.

indices: [k], strictly ascending, from 0 up to offsets[-1] - 1.
values: [k], the elements there.
offsets: [regions + 1], non-decreasing from 0: region r is elements [offsets[r], offsets[r + 1]).
messages: [m], one after another. Each is of a vector of its region's elements, which are numbered from its first one on.
lengths: [regions], how many bytes each has.
sent: [k], the values as every reader of the messages sees them.
value_format: As of EncodeEntries, for each message by itself.
)doc");

REGISTER_OP("TfStrategies>SumEntries")
    .Input("messages: uint8")
    .Input("count: int64")
    .Output("sum: float")
    .SetShapeFn(SumShape)
    .Doc(R"doc(
Adds up what EncodeEntries wrote, in the order of the messages: the same bits for all who have the same bytes.

messages: [m], any number of messages, one after another.
count: Elements of the vector that all of them are entries of.
sum: [count], 0 where no message has an entry.
)doc");

REGISTER_OP("TfStrategies>MergeEntries")
    .Input("messages: uint8")
    .Input("count: int64")
    .Output("indices: int64")
    .Output("values: float")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::shape_inference::ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &shape));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &shape));
      const auto entries = context->Vector(context->UnknownDim());
      context->set_output(0, entries);
      context->set_output(1, entries);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The sum that SumEntries forms, as a list.

messages: [m], any number of messages, one after another.
count: Elements of the vector that all of them are entries of.
indices: [u], every index that a message has, ascending.
values: [u], the sums there, 0 where values cancel.
)doc");

absl::Status GetFormat(OpKernelConstruction* construction, compress::ValueFormat* format) {
  std::string name;
  TF_RETURN_IF_ERROR(construction->GetAttr("value_format", &name));
  *format = name == "float16" ? compress::ValueFormat::kFloat16
            : name == "int8"  ? compress::ValueFormat::kInt8
                              : compress::ValueFormat::kFloat32;
  return absl::OkStatus();
}

absl::Status CheckEntries(const Tensor& indices, const Tensor& values) {
  if (indices.dims() == 1 && indices.shape() == values.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("indices and values must be vectors of one length; got shapes ",
                   indices.shape().DebugString(), " and ", values.shape().DebugString()));
}

absl::Status SetMessage(OpKernelContext* context, const std::vector<uint8_t>& bytes) {
  Tensor* message = nullptr;
  TF_RETURN_IF_ERROR(
      context->allocate_output(0, TensorShape({static_cast<int64_t>(bytes.size())}), &message));
  std::copy(bytes.begin(), bytes.end(), message->flat<uint8_t>().data());
  return absl::OkStatus();
}

class EncodeEntriesKernel final : public tensorflow::OpKernel {
 public:
  explicit EncodeEntriesKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, GetFormat(construction, &format_));
  }

  void Compute(OpKernelContext* context) override {
    const tensorflow::port::ScopedFlushDenormal as_in_the_pool;
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    OP_REQUIRES_OK(context, CheckEntries(indices, values));
    int64_t count = 0;
    OP_REQUIRES_OK(context, CountOf(context->input(2), &count));
    Tensor* sent = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, values.shape(), &sent));
    std::vector<uint8_t> bytes;
    OP_REQUIRES_OK(context, ToTensorFlow(compress::EncodeEntries(
                                indices.flat<int64_t>().data(), values.flat<float>().data(),
                                indices.NumElements(), count, format_, &bytes, sent->flat<float>().data())));
    OP_REQUIRES_OK(context, SetMessage(context, bytes));
  }

 private:
  compress::ValueFormat format_ = compress::ValueFormat::kFloat32;
};

class EncodeRegionsKernel final : public tensorflow::OpKernel {
 public:
  explicit EncodeRegionsKernel(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, GetFormat(construction, &format_));
  }

  void Compute(OpKernelContext* context) override {
    const tensorflow::port::ScopedFlushDenormal as_in_the_pool;
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    const Tensor& offsets = context->input(2);
    OP_REQUIRES_OK(context, CheckEntries(indices, values));
    OP_REQUIRES(context, offsets.dims() == 1 && offsets.NumElements() >= 2,
                absl::InvalidArgumentError(absl::StrCat(
                    "offsets must be a vector of one entry more than there are regions; got shape ",
                    offsets.shape().DebugString())));
    const int64_t regions = offsets.NumElements() - 1;
    Tensor* lengths = nullptr;
    Tensor* sent = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({regions}), &lengths));
    OP_REQUIRES_OK(context, context->allocate_output(2, values.shape(), &sent));
    std::vector<uint8_t> bytes;
    OP_REQUIRES_OK(context, ToTensorFlow(compress::EncodeRegions(
                                indices.flat<int64_t>().data(), values.flat<float>().data(),
                                indices.NumElements(), offsets.flat<int64_t>().data(), regions, format_,
                                &bytes, lengths->flat<int64_t>().data(), sent->flat<float>().data())));
    OP_REQUIRES_OK(context, SetMessage(context, bytes));
  }

 private:
  compress::ValueFormat format_ = compress::ValueFormat::kFloat32;
};

class SumEntriesKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override { ComputeSum(context, compress::SumEntries, kPartCost); }

 private:
  static constexpr int64_t kPartCost = 30000;  // cycles, for 65,536 elements
};

class MergeEntriesKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const tensorflow::port::ScopedFlushDenormal as_in_the_pool;
    const Tensor& messages = context->input(0);
    int64_t count = 0;
    OP_REQUIRES_OK(context, CheckMessages(messages));
    OP_REQUIRES_OK(context, CountOf(context->input(1), &count));
    compress::Selection merged;
    OP_REQUIRES_OK(
        context, ToTensorFlow(compress::MergeEntries(messages.flat<uint8_t>().data(), messages.NumElements(),
                                                     count, &merged, OnPool(context, kPartCost))));
    const TensorShape shape({static_cast<int64_t>(merged.indices.size())});
    Tensor* indices = nullptr;
    Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &indices));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &values));
    std::copy(merged.indices.begin(), merged.indices.end(), indices->flat<int64_t>().data());
    std::copy(merged.values.begin(), merged.values.end(), values->flat<float>().data());
  }

 private:
  static constexpr int64_t kPartCost = 20000;  // cycles, for 65,536 elements of which some are sent
};

REGISTER_KERNEL_BUILDER(Name("TfStrategies>EncodeEntries").Device(tensorflow::DEVICE_CPU),
                        EncodeEntriesKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>EncodeRegions").Device(tensorflow::DEVICE_CPU),
                        EncodeRegionsKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>SumEntries").Device(tensorflow::DEVICE_CPU), SumEntriesKernel);
REGISTER_KERNEL_BUILDER(Name("TfStrategies>MergeEntries").Device(tensorflow::DEVICE_CPU), MergeEntriesKernel);

}  // namespace
}  // namespace tf_strategies
