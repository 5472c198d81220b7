// The common base of the kernels that store workers' gradients on a server, and return them.
#ifndef OPS_KERNELS_GRADIENT_KERNEL_H_
#define OPS_KERNELS_GRADIENT_KERNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/kernels/ledger_kernel.h"

namespace tf_strategies {

class GradientKernel : public LedgerKernel {
 public:
  explicit GradientKernel(tensorflow::OpKernelConstruction* construction);

 protected:
  using Found = std::vector<std::shared_ptr<const ledger::Gradient>>;

  // Keeps the tensors as the gradient of the worker and step that the inputs name. Writes the output `held`.
  absl::Status Put(tensorflow::OpKernelContext* context, bool is_rows,
                   std::vector<tensorflow::Tensor> tensors) const;

  // Looks up the gradients of the members and step that the inputs name; they must be of this kind, in so many parts.
  absl::Status Take(tensorflow::OpKernelContext* context, bool is_rows, tensorflow::DataType dtype,
                    size_t parts, Found* found) const;

  std::string key_;
};

}  // namespace tf_strategies

#endif  // OPS_KERNELS_GRADIENT_KERNEL_H_
