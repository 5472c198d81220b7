// How the tensors of a pack are laid out for an all-reduce: the same on CPUs and GPUs, so that a group can have both.
#ifndef OPS_KERNELS_PACK_LAYOUT_H_
#define OPS_KERNELS_PACK_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ops/communicator/communicator.h"
#include "ops/kernels/dtype_convert.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

// A large tensor is a part of its own. Small tensors are copied into one buffer, because a message for each would cost more.
struct PackLayout {
  // To copy this number of bytes within the cache takes as long as a message.
  static constexpr size_t kLargeBytes = 64 << 10;
  static constexpr size_t kMostLarge = 1024;

  explicit PackLayout(tensorflow::OpKernelContext* context) {
    const int64_t aligned = tensorflow::Allocator::kAllocatorAlignment / ElementBytes(context);
    size_t total = 0;
    for (int i = 0; i < context->num_inputs(); ++i) total += context->input(i).TotalBytes();
    const size_t least = std::max(kLargeBytes, total / kMostLarge);
    for (int i = 0; i < context->num_inputs(); ++i) {
      if (context->input(i).TotalBytes() >= least || context->num_inputs() == 1) {
        large.push_back(i);
        continue;
      }
      small.push_back(i);
      begins.push_back(small_elements);
      small_elements += (context->input(i).NumElements() + aligned - 1) / aligned * aligned;
    }
  }

  // Sets to 0 what lies in the buffer between the j-th small tensor, which is at `tensor`, and the next one.
  void ClearRestOf(tensorflow::OpKernelContext* context, size_t j, char* tensor) const {
    const int64_t end = j + 1 < begins.size() ? begins[j + 1] : small_elements;
    const size_t bytes = context->input(small[j]).TotalBytes();
    std::memset(tensor + bytes, 0, (end - begins[j]) * ElementBytes(context) - bytes);
  }

  static int64_t ElementBytes(tensorflow::OpKernelContext* context) {
    return tensorflow::DataTypeSize(context->input_dtype(0));
  }

  std::vector<int> large, small;  // inputs
  std::vector<int64_t> begins;    // of the small ones in the buffer, each aligned
  int64_t small_elements = 0;     // of the buffer
};

// Sets what must agree between the ranks.
inline void DescribePack(tensorflow::OpKernelContext* context, Communicator::Request* request) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    request->shape += (i == 0 ? "" : " ") + context->input(i).shape().DebugString();
  }
  request->dtype = FromTensorFlow(context->input_dtype(0));
}

inline absl::Status ReadReduction(tensorflow::OpKernelConstruction* construction, ReduceOp* op) {
  std::string name;
  TF_RETURN_IF_ERROR(construction->GetAttr("reduction", &name));
  *op = name == "mean"  ? ReduceOp::kMean
        : name == "min" ? ReduceOp::kMin
        : name == "max" ? ReduceOp::kMax
                        : ReduceOp::kSum;
  return absl::OkStatus();
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_PACK_LAYOUT_H_
