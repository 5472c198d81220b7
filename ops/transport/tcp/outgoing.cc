#include "ops/transport/tcp/outgoing.h"

#include <sys/uio.h>

#include <utility>

namespace tf_strategies::tcp {
namespace {

constexpr int kMostParts = 64;  // of one system call
constexpr size_t kMostBytesAtOnce = size_t{4} << 20;

}  // namespace

void Outgoing::Add(const FrameHead& head, const void* data, Transport::SendDone done) {
  frames_.push_back({head, static_cast<const char*>(data), std::move(done)});
}

Status Outgoing::Write(Stream* stream, bool* moved) {
  blocked_ = false;
  if (frames_.empty()) {
    size_t nothing = 0;
    return stream->Write(nullptr, 0, &nothing);
  }
  size_t written_now = 0;
  while (!frames_.empty() && written_now < kMostBytesAtOnce) {
    iovec parts[kMostParts];
    int count = 0;
    size_t skip = written_, total = 0;
    for (Frame& frame : frames_) {
      if (count + 2 > kMostParts) break;
      const auto add = [&](const void* from, size_t bytes) {
        if (skip >= bytes) {
          skip -= bytes;
          return;
        }
        parts[count++] = {const_cast<char*>(static_cast<const char*>(from)) + skip, bytes - skip};
        total += bytes - skip;
        skip = 0;
      };
      add(&frame.head, sizeof(FrameHead));
      if (frame.data != nullptr) add(frame.data, frame.head.bytes);
    }
    size_t sent = 0;
    TFS_RETURN_IF_ERROR(stream->Write(parts, count, &sent));
    blocked_ = sent < total;
    if (sent == 0) return Status::Ok();
    *moved = true;
    written_now += sent;
    Advance(sent);
    if (blocked_) return Status::Ok();
  }
  return Status::Ok();
}

void Outgoing::Advance(size_t written) {
  written_ += written;
  while (!frames_.empty() && written_ >= frames_.front().bytes()) {
    written_ -= frames_.front().bytes();
    const Transport::SendDone done = std::move(frames_.front().done);
    frames_.pop_front();
    if (done) done(Status::Ok());
  }
}

void Outgoing::Fail(const Status& status) {
  std::deque<Frame> frames;
  frames.swap(frames_);
  written_ = 0;
  blocked_ = false;
  for (Frame& frame : frames) {
    if (frame.done) frame.done(status);
  }
}

}  // namespace tf_strategies::tcp
