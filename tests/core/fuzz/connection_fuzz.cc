// A whole TCP transport whose peer says whatever it likes, reads or does not, and leaves: each send and each reception ends once, and
// what leaves is frames by the book: no long message is sent that was not asked for.
//
// Input: actions of one byte, each with its arguments.

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "tests/core/fuzz/frame_script.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using tcp::FrameKind;

enum Action : uint8_t {
  kReceive,
  kRaw,
  kHead,
  kFill,
  kMessage,
  kSend,
  kProgress,
  kListen,
  kHalfClose,
  kActions
};

constexpr std::chrono::seconds kMostWait{20};
constexpr size_t kMostHeardAtOnce = 256 << 10;

struct Operation {
  explicit Operation(size_t bytes) : place(bytes) {}
  Place place;
  int ended = 0;
  Status status;
  size_t came = 0;
};

class Run {
 public:
  Run() {
    int sockets[2];
    TFS_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    theirs_ = sockets[1];
    TFS_CHECK(MakeTcpTransport(0, {-1, sockets[0]}, &transport_).ok());
  }
  ~Run() { close(theirs_); }

  void All(Input input) {
    while (!input.empty()) {
      switch (input.Take<uint8_t>() % kActions) {
        case kReceive: {
          const uint32_t key = input.Take<uint8_t>() % kKeys;
          Receive(key, SizeOf(input.Take<uint8_t>()));
          break;
        }
        case kSend: {
          const uint32_t key = input.Take<uint8_t>() % kKeys;
          Send(key, SizeOf(input.Take<uint8_t>()));
          break;
        }
        case kRaw: stream_.Raw(&input); break;
        case kHead: stream_.Head(&input); break;
        case kFill: stream_.Fill(SizeOf(input.Take<uint8_t>())); break;
        case kMessage: stream_.Message(&input); break;
        case kProgress: transport_->Progress(); break;
        case kListen: Listen(size_t{1} << (input.Take<uint8_t>() % 20)); break;
        default: half_closed_ = true;
      }
      Say();
    }
    Settle();
    // The peer goes: whatever has not ended ends with an error.
    shutdown(theirs_, SHUT_RDWR);
    const auto end = std::chrono::steady_clock::now() + kMostWait;
    while (Outstanding() && std::chrono::steady_clock::now() < end) transport_->Progress();
    Judge();
  }

 private:
  void Receive(uint32_t key, size_t bytes) {
    Operation& operation = receptions_.emplace_back(bytes);
    transport_->Receive(1, {0, key, 0}, operation.place.data(), bytes,
                        [&operation](const Status& status, const Received& received) {
                          ++operation.ended;
                          operation.status = status;
                          operation.came = received.bytes;
                        });
  }

  void Send(uint32_t key, size_t bytes) {
    Operation& operation = sends_.emplace_back(bytes);
    transport_->Send(1, {0, key, 0}, operation.place.data(), bytes, [&operation](const Status& status) {
      ++operation.ended;
      operation.status = status;
    });
  }

  void Say() {
    const std::string& bytes = stream_.bytes();
    while (written_ < bytes.size() && !lost_) {
      const ssize_t sent =
          send(theirs_, bytes.data() + written_, bytes.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) {
        written_ += static_cast<size_t>(sent);
      } else if (!transport_->Progress()) {
        lost_ = true;  // it reads no more: the connection has ended there
      }
    }
    if (half_closed_ && !lost_) {
      shutdown(theirs_, SHUT_WR);
      lost_ = true;
    }
  }

  bool Listen(size_t most) {
    static char bytes[kMostHeardAtOnce];
    const ssize_t got = recv(theirs_, bytes, std::min(most, kMostHeardAtOnce), MSG_DONTWAIT);
    if (got > 0) heard_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  void Settle() {
    bool moved = true;
    while (moved) {
      moved = false;
      // A connection that is lost may say so each time.
      for (int i = 0; i < 4; ++i) transport_->Progress();
      while (Listen(kMostHeardAtOnce)) moved = true;
    }
  }

  bool Outstanding() const {
    for (const auto* operations : {&receptions_, &sends_}) {
      for (const Operation& each : *operations) {
        if (each.ended == 0) return true;
      }
    }
    return false;
  }

  void Judge() const {
    for (const Operation& each : sends_) TFS_CHECK_EQ(each.ended, 1);
    for (const Operation& each : receptions_) {
      TFS_CHECK_EQ(each.ended, 1);
      if (each.status.ok()) TFS_CHECK_LE(each.came, each.place.size());
      each.place.CheckUntouchedBehind(each.status.ok()                        ? each.came
                                      : each.status.code() == Code::kMismatch ? 0
                                                                              : each.place.size());
    }
    const PeerMessages said = ReadByTheBook(stream_.bytes().substr(0, written_));
    const PeerMessages heard = ReadByTheBook(heard_);
    TFS_CHECK(!heard.nonsense && !heard.broken_word);
    for (const auto& [key, messages] : heard.by_key) {
      int data = 0;
      for (const PeerMessage& each : messages) data += each.head.kind == FrameKind::kData;
      const auto ready = said.ready.find(key);
      TFS_CHECK_LE(data, ready == said.ready.end() ? 0 : ready->second);
    }
  }

  // Declared before the transport, which refers to them until it has gone.
  std::list<Operation> receptions_, sends_;
  std::unique_ptr<Transport> transport_;
  int theirs_ = -1;
  PeerStream stream_;
  size_t written_ = 0;
  bool half_closed_ = false, lost_ = false;
  std::string heard_;
};

std::string Act(Action action, uint8_t key, uint8_t size) {
  return {static_cast<char>(action), static_cast<char>(key), static_cast<char>(size)};
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto say = [](FrameKind kind, uint8_t key, uint8_t size) {
    return MessageAction(kMessage, kind, key, size);
  };
  const std::string progress(1, static_cast<char>(kProgress));
  const std::string listen{static_cast<char>(kListen), 19}, half_close(1, static_cast<char>(kHalfClose));
  return {
      Act(kSend, 1, 3) + Act(kReceive, 1, 3) + say(FrameKind::kEager, 1, 3) + progress + listen,
      Act(kSend, 2, 6) + progress + listen + say(FrameKind::kReady, 2, 6) + progress + listen + progress,
      say(FrameKind::kReady, 0, 6) + progress + Act(kSend, 0, 6) + Act(kSend, 0, 7) + progress + listen,
      Act(kReceive, 3, 7) + progress + listen + say(FrameKind::kAnnounce, 3, 7) +
          say(FrameKind::kData, 3, 7) + progress + half_close,
      say(FrameKind::kAnnounce, 3, 6) + progress + Act(kReceive, 3, 1) + Act(kSend, 3, 7) + half_close +
          progress,
  };
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_strategies::fuzz::Run().All({data, size});
  return 0;
}
