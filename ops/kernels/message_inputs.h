// Inputs of the operations that read compressed messages.
#ifndef OPS_KERNELS_MESSAGE_INPUTS_H_
#define OPS_KERNELS_MESSAGE_INPUTS_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "ops/compress/message.h"
#include "ops/compress/parallel.h"
#include "ops/kernels/on_pool.h"
#include "ops/kernels/status_convert.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/denormal.h"

namespace tf_strategies {

inline absl::Status CountOf(const tensorflow::Tensor& count, int64_t* value) {
  if (count.dims() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("count must be a scalar; got shape ", count.shape().DebugString()));
  }
  *value = count.scalar<int64_t>()();
  return ToTensorFlow(compress::CheckCount(*value));
}

inline absl::Status CheckMessages(const tensorflow::Tensor& messages) {
  if (messages.dims() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("messages must be a vector of bytes; got shape ", messages.shape().DebugString()));
}

// The output shape for messages and count: a vector of count elements.
inline absl::Status SumShape(tensorflow::shape_inference::InferenceContext* context) {
  tensorflow::shape_inference::ShapeHandle shape;
  tensorflow::shape_inference::DimensionHandle count;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &shape));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 0, &shape));
  TF_RETURN_IF_ERROR(context->MakeDimForScalarInput(1, &count));
  context->set_output(0, context->Vector(count));
  return absl::OkStatus();
}

// The inputs of an operation that sums messages. They are in the memory of the host.
struct SumInputs {
  const uint8_t* bytes = nullptr;
  int64_t size = 0;
  int64_t count = 0;  // of the elements of each message
};

inline absl::Status ReadSumInputs(tensorflow::OpKernelContext* context, SumInputs* inputs) {
  const tensorflow::Tensor& messages = context->input(0);
  TF_RETURN_IF_ERROR(CheckMessages(messages));
  inputs->bytes = messages.flat<uint8_t>().data();
  inputs->size = messages.NumElements();
  return CountOf(context->input(1), &inputs->count);
}

// Sums messages of `count` elements. `sum` is compress::SumEntries or SumQuantized.
//
// Threads of the pool flush subnormal numbers to zero. This thread, which may do a part of the work, does the
// same meanwhile.
template <typename Sum>
void ComputeSum(tensorflow::OpKernelContext* context, const Sum& sum, int64_t part_cost) {
  const tensorflow::port::ScopedFlushDenormal as_in_the_pool;
  SumInputs inputs;
  OP_REQUIRES_OK(context, ReadSumInputs(context, &inputs));
  tensorflow::Tensor* output = nullptr;
  OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape({inputs.count}), &output));
  OP_REQUIRES_OK(context, ToTensorFlow(sum(inputs.bytes, inputs.size, inputs.count,
                                           output->flat<float>().data(), OnPool(context, part_cost))));
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_MESSAGE_INPUTS_H_
