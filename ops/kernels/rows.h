// The common base of collectives that join the ranks' tensors along axis 0.
#ifndef OPS_KERNELS_ROWS_H_
#define OPS_KERNELS_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/communicator/registry.h"
#include "ops/kernels/collective_kernel.h"
#include "ops/kernels/completion.h"
#include "ops/kernels/dtype_convert.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_strategies {

inline tensorflow::TensorShape RowShape(const tensorflow::Tensor& tensor) {
  tensorflow::TensorShape shape = tensor.shape();
  shape.RemoveDim(0);
  return shape;
}

// Describes such rows in messages: "[3] rows of float".
inline std::string DescribeRows(const tensorflow::Tensor& tensor) {
  return RowShape(tensor).DebugString() + " rows of " + tensorflow::DataTypeString(tensor.dtype());
}

// Rows like those of a tensor, `counts` [size] of them from each rank.
struct JoinedRows {
  std::vector<int64_t> offsets{0};  // [size + 1], in elements of the core's dtype
  tensorflow::TensorShape shape;    // of all of them
};

// Checks the counts of the peers. Returns InternalError if one is impossible. what: "all_gather 'name'".
inline absl::Status JoinRows(const std::string& what, const tensorflow::Tensor& tensor,
                             const std::vector<int64_t>& counts, JoinedRows* joined) {
  const int64_t row_bytes = RowShape(tensor).num_elements() * tensorflow::DataTypeSize(tensor.dtype());
  const auto element_bytes = static_cast<int64_t>(DTypeSize(FromTensorFlow(tensor.dtype())));
  const int64_t most_rows = std::numeric_limits<int64_t>::max() / std::max<int64_t>(row_bytes, 1);
  int64_t total = 0;
  for (int64_t count : counts) {
    if (count < 0 || count > most_rows - total) {
      return absl::InternalError(
          absl::StrCat(what, ": the first dimension of a worker's tensor is invalid: ", count));
    }
    total += count;
    joined->offsets.push_back(total * (row_bytes / element_bytes));
  }
  joined->shape = tensor.shape();
  joined->shape.set_dim(0, total);
  return absl::OkStatus();
}

// A collective of rows whose numbers the ranks must exchange first. After this exchange, `begin` allocates
// the outputs and starts the collective, on a thread of TensorFlow. It holds everything it needs, even if the
// kernel was cancelled meanwhile.
struct SecondPart {
  const char* operation;  // for messages: "all_gather"
  int64_t communicator;   // its id
  Communicator::Request request;
  std::shared_ptr<Completion> completion;
  std::function<absl::Status(const SecondPart&, Communicator*)> begin;

  std::string Describe() const { return std::string(operation) + " '" + request.name + "'"; }

  // status: how the exchange has ended.
  void Run(const Status& status) const {
    if (!status.ok()) return completion->End(ToTensorFlow(status));
    const auto found = FindCommunicator(communicator);
    if (found == nullptr) {
      return completion->End(
          absl::CancelledError(absl::StrCat("the communicator was closed during an ", operation)));
    }
    const absl::Status begun = begin(*this, found.get());
    if (begun.ok()) return;
    found->Report(request.instance, CannotBegin(request.name, begun));
    completion->End(begun);
  }
};

// Completes the exchange: schedules the second part.
inline Communicator::Done Then(tensorflow::OpKernelContext* context, SecondPart second) {
  auto* const threads = context->device()->tensorflow_cpu_worker_threads()->workers;
  return [second = std::move(second), threads](const Status& status) {
    threads->Schedule([second, status] { second.Run(status); });
  };
}

// An output of the kernel, or memory that only the peers need when the kernel has ended.
inline absl::Status AllocateOutput(Completion* completion, int index, tensorflow::DataType dtype,
                                   const tensorflow::TensorShape& shape, tensorflow::Tensor* output) {
  absl::Status allocated;
  const bool running = completion->WithContext([&](tensorflow::OpKernelContext* context) {
    tensorflow::Tensor* made = nullptr;
    allocated = context->allocate_output(index, shape, &made);
    if (allocated.ok()) *output = *made;
  });
  if (running) return allocated;
  *output = tensorflow::Tensor(dtype, shape);
  return output->IsInitialized() ? absl::OkStatus()
                                 : absl::ResourceExhaustedError("memory ran out: " + shape.DebugString());
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_ROWS_H_
