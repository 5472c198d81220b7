#include "ops/base/status.h"

namespace tf_strategies {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kMismatch: return "MISMATCH";
    case Code::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case Code::kUnavailable: return "UNAVAILABLE";
    case Code::kCancelled: return "CANCELLED";
    case Code::kInternal: return "INTERNAL";
    case Code::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition: return "FAILED_PRECONDITION";
    case Code::kAborted: return "ABORTED";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(CodeName(code_)) + ": " + message_;
}

Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Status Mismatch(std::string message) { return {Code::kMismatch, std::move(message)}; }
Status DeadlineExceeded(std::string message) { return {Code::kDeadlineExceeded, std::move(message)}; }
Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status Cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }
Status ResourceExhausted(std::string message) { return {Code::kResourceExhausted, std::move(message)}; }
Status FailedPrecondition(std::string message) { return {Code::kFailedPrecondition, std::move(message)}; }
Status Aborted(std::string message) { return {Code::kAborted, std::move(message)}; }

}  // namespace tf_strategies
