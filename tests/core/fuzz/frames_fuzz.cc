// The frames of the TCP transport as one connection reads them, whatever comes in whatever pieces: each reception ends once, with its
// message or with an error, and no byte lands outside of its place.
//
// Input: actions of one byte, each with its arguments.

#include "ops/transport/tcp/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <map>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/transport/tcp/incoming.h"
#include "ops/transport/tcp/plain_stream.h"
#include "tests/core/fuzz/frame_script.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using tcp::FrameKind;

enum Action : uint8_t { kReceive, kRaw, kHead, kFill, kMessage, kRead, kActions };

struct Reception {
  explicit Reception(size_t bytes) : place(bytes) {}
  Place place;
  int ended = 0;
  Status status;
  Received received;
};

class Run {
 public:
  Run() : incoming_([](uint32_t, size_t) {}, [](uint32_t) { return Status::Ok(); }) {
    int sockets[2];
    TFS_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    mine_ = sockets[0];
    theirs_ = sockets[1];
  }
  ~Run() {
    close(mine_);
    close(theirs_);
  }

  void All(Input input) {
    while (!input.empty() && error_.ok()) {
      switch (input.Take<uint8_t>() % kActions) {
        case kReceive: {
          const uint32_t key = input.Take<uint8_t>() % kKeys;
          Receive(key, SizeOf(input.Take<uint8_t>()));
          break;
        }
        case kRaw: stream_.Raw(&input); break;
        case kHead: stream_.Head(&input); break;
        case kFill: stream_.Fill(SizeOf(input.Take<uint8_t>())); break;
        case kMessage: stream_.Message(&input); break;
        default: Read();
      }
      Write();
    }
    ReadAll();
    const bool ended_early = !error_.ok();
    if (!ended_early) {
      shutdown(theirs_, SHUT_WR);
      Read();
      TFS_CHECK(error_.code() == Code::kUnavailable);
    }
    incoming_.Fail(error_);
    Judge(ended_early);
  }

 private:
  void Receive(uint32_t key, size_t bytes) {
    Reception& reception = receptions_[key].emplace_back(bytes);
    incoming_.Receive(key, reception.place.data(), bytes,
                      [&reception](const Status& status, const Received& received) {
                        ++reception.ended;
                        reception.status = status;
                        reception.received = received;
                      });
  }

  void Write() {
    const std::string& bytes = stream_.bytes();
    while (written_ < bytes.size() && error_.ok()) {
      const ssize_t sent =
          send(theirs_, bytes.data() + written_, bytes.size() - written_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) {
        Read();
      } else {
        written_ += static_cast<size_t>(sent);
      }
    }
  }

  bool Read() {
    bool moved = false;
    if (error_.ok()) {
      tcp::PlainStream stream(mine_);
      error_ = incoming_.Read(&stream, &moved);
    }
    return moved && error_.ok();
  }

  void ReadAll() {
    while (Read()) {
    }
  }

  // ended_early: the peer's bytes were refused.
  void Judge(bool ended_early) const {
    const PeerMessages peer = ReadByTheBook(stream_.bytes().substr(0, written_));
    if (peer.nonsense) TFS_CHECK(ended_early);
    // A message that did not fit its place may leave a payload that is nobody's, and the book does not say which.
    const bool unclear = peer.broken_word && AnyMismatch();
    if (peer.broken_word && !unclear) TFS_CHECK(ended_early);
    for (const auto& [key, receptions] : receptions_) {
      const auto found = peer.by_key.find(key);
      const std::vector<PeerMessage> messages =
          found == peer.by_key.end() ? std::vector<PeerMessage>() : found->second;
      bool in_order = !unclear;
      size_t number = 0;
      for (const Reception& reception : receptions) {
        JudgeOne(reception, number < messages.size() ? &messages[number] : nullptr, in_order, ended_early);
        in_order = in_order && reception.status.code() != Code::kMismatch;
        ++number;
      }
    }
  }

  bool AnyMismatch() const {
    for (const auto& [key, receptions] : receptions_) {
      for (const Reception& each : receptions) {
        if (each.status.code() == Code::kMismatch) return true;
      }
    }
    return false;
  }

  void JudgeOne(const Reception& reception, const PeerMessage* message, bool in_order,
                bool ended_early) const {
    TFS_CHECK_EQ(reception.ended, 1);
    const bool ok = reception.status.ok();
    const size_t came = reception.received.bytes;
    if (ok) TFS_CHECK_LE(came, reception.place.size());
    const bool nothing = reception.status.code() == Code::kMismatch;
    reception.place.CheckUntouchedBehind(ok ? came : nothing ? 0 : reception.place.size());
    if (nothing) TFS_CHECK_GT(came, reception.place.size());
    if (!in_order) return;
    if (ok) {
      TFS_CHECK(message != nullptr && message->complete);
      TFS_CHECK_EQ(came, message->head.bytes);
      const uint32_t signature = reception.received.signature;
      TFS_CHECK(signature == message->head.signature || signature == message->announced_signature);
      TFS_CHECK(reception.place.Holds(stream_.bytes().substr(message->payload_at, came)));
    } else if (!ended_early && message != nullptr && message->complete) {
      TFS_CHECK_GT(message->head.bytes, reception.place.size());
    }
  }

  tcp::Incoming incoming_;
  int mine_ = -1, theirs_ = -1;
  PeerStream stream_;
  size_t written_ = 0;
  std::map<uint32_t, std::list<Reception>> receptions_;
  Status error_;
};

std::string ReceiveAction(uint8_t key, uint8_t size) {
  return {static_cast<char>(kReceive), static_cast<char>(key), static_cast<char>(size)};
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto say = [](FrameKind kind, uint8_t key, uint8_t size) {
    return MessageAction(kMessage, kind, key, size);
  };
  const std::string read(1, static_cast<char>(kRead));
  const auto head = [](FrameKind kind, uint8_t key, uint8_t size) {
    return MessageAction(kHead, kind, key, size);
  };
  const auto fill = [](uint8_t size) {
    return std::string{static_cast<char>(kFill), static_cast<char>(size)};
  };
  return {
      ReceiveAction(1, 3) + say(FrameKind::kEager, 1, 3) + read + say(FrameKind::kEager, 1, 2) + read +
          ReceiveAction(1, 4),
      ReceiveAction(0, 6) + say(FrameKind::kData, 0, 6) + read + say(FrameKind::kAnnounce, 0, 5) + read +
          ReceiveAction(0, 7) + say(FrameKind::kData, 0, 5),
      say(FrameKind::kAnnounce, 2, 5) + say(FrameKind::kAnnounce, 2, 6) + say(FrameKind::kData, 2, 5) + read +
          ReceiveAction(2, 6) + say(FrameKind::kData, 2, 6) + ReceiveAction(2, 6) +
          say(FrameKind::kReady, 2, 6),
      head(FrameKind::kData, 3, 7) + fill(6) + read + ReceiveAction(3, 7) + fill(3),
      ReceiveAction(1, 1) + head(FrameKind::kData, 1, 6) + fill(4) + read + say(FrameKind::kEager, 1, 1),
  };
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_strategies::fuzz::Run().All({data, size});
  return 0;
}
