// The one place where the core's Status becomes TensorFlow's.
#ifndef OPS_KERNELS_STATUS_CONVERT_H_
#define OPS_KERNELS_STATUS_CONVERT_H_

#include <string>

#include "absl/status/status.h"
#include "ops/base/status.h"

namespace tf_strategies {

// A lost peer becomes UNAVAILABLE, which Python sees as tf.errors.UnavailableError (tfs.WorkerLostError).
inline absl::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return absl::OkStatus();
    case Code::kInvalidArgument:
    case Code::kMismatch: return absl::InvalidArgumentError(status.message());
    case Code::kDeadlineExceeded: return absl::DeadlineExceededError(status.message());
    case Code::kUnavailable: return absl::UnavailableError(status.message());
    case Code::kCancelled: return absl::CancelledError(status.message());
    case Code::kResourceExhausted: return absl::ResourceExhaustedError(status.message());
    case Code::kFailedPrecondition: return absl::FailedPreconditionError(status.message());
    case Code::kAborted: return absl::AbortedError(status.message());
    case Code::kInternal: break;
  }
  return absl::InternalError(status.message());
}

inline Status FromTensorFlow(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk: return Status::Ok();
    case absl::StatusCode::kInvalidArgument: return InvalidArgument(message);
    case absl::StatusCode::kResourceExhausted: return ResourceExhausted(message);
    default: return Internal(message);
  }
}

}  // namespace tf_strategies

#endif  // OPS_KERNELS_STATUS_CONVERT_H_
