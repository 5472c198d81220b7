// Status: the outcome of an operation of the core. No exceptions cross a boundary of this library.
#ifndef OPS_BASE_STATUS_H_
#define OPS_BASE_STATUS_H_

#include <string>
#include <utility>

namespace tf_strategies {

enum class Code {
  kOk = 0,
  kInvalidArgument = 1,     // the caller's input is wrong
  kMismatch = 2,            // two workers asked for different things
  kDeadlineExceeded = 3,    // a wait ran out
  kUnavailable = 4,         // a peer is lost
  kCancelled = 5,           // shut down while the operation was outstanding
  kInternal = 6,            // a library below reported an error
  kResourceExhausted = 7,   // memory ran out
  kFailedPrecondition = 8,  // not in this state
  kAborted = 9,             // the caller was replaced, or declared lost
};

const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return Status(); }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

Status InvalidArgument(std::string message);
Status Mismatch(std::string message);
Status DeadlineExceeded(std::string message);
Status Unavailable(std::string message);
Status Cancelled(std::string message);
Status Internal(std::string message);
Status ResourceExhausted(std::string message);
Status FailedPrecondition(std::string message);
Status Aborted(std::string message);

}  // namespace tf_strategies

#define TFS_RETURN_IF_ERROR(expression)                 \
  do {                                                  \
    ::tf_strategies::Status tfs_status_ = (expression); \
    if (!tfs_status_.ok()) return tfs_status_;          \
  } while (false)

#endif  // OPS_BASE_STATUS_H_
