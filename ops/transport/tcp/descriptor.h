// Owns a file descriptor.
#ifndef OPS_TRANSPORT_TCP_DESCRIPTOR_H_
#define OPS_TRANSPORT_TCP_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace tf_strategies::tcp {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_DESCRIPTOR_H_
