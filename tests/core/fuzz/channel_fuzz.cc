// One end of a channel whose other end says whatever it likes: each transfer ends once, no byte lands outside of its place, and once
// the channel has ended with an error everything has.
//
// Input: actions of one byte, each with its arguments.

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/channel/channel.h"
#include "ops/transport/in_process.h"
#include "tests/core/fuzz/input.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

using channel::Message;
using channel::MessageKind;

enum Action : uint8_t { kRaw, kMessage, kPayload, kReceive, kSend, kGiveUp, kActions };

constexpr size_t kMostPlaceBytes = 1 << 16;  // the layer above refuses more
constexpr size_t kMostEagerBytes = 1 << 20;  // all that is sent here is copied
constexpr double kMostSeconds = 20;

Tag PayloadTag(uint32_t payload) {
  return {payload & ((1u << kInstanceBits) - 1), 1 + (payload >> kInstanceBits), 0};
}

struct Transfer {
  std::unique_ptr<Place> place;
  std::shared_ptr<std::string> sent;
  int placed = 0, ended = 0;
  Status status;
};

class Run {
 public:
  Run() {
    const auto fabric = MakeInProcessFabric(2, kMostEagerBytes);
    stranger_ = MakeInProcessTransport(fabric, 1);
    channel_ = std::make_unique<Channel>(MakeInProcessTransport(fabric, 0), "here", "there");
  }

  void All(Input input) {
    while (!input.empty()) {
      switch (input.Take<uint8_t>() % kActions) {
        case kRaw: Say({0, 0, 0}, input.TakeBytes(input.Take<uint16_t>())); break;
        case kMessage: Say({0, 0, 0}, channel::Encode(MessageOf(&input))); break;
        case kPayload: {
          const uint32_t payload = input.Take<uint8_t>() % 4;
          Say(PayloadTag(payload), std::string(input.Take<uint16_t>(), 'p'));
          break;
        }
        case kReceive: Receive(IdOf(input.Take<uint8_t>())); break;
        case kSend: {
          const TransferId id = IdOf(input.Take<uint8_t>());
          Send(id, input.Take<uint16_t>());
          break;
        }
        default: channel_->GiveUp(input.Take<uint8_t>());
      }
    }
    channel_->Close();
    const Status end = channel_->status();
    TFS_CHECK(!end.ok());
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait_for(lock, std::chrono::duration<double>(kMostSeconds), [this] { return outstanding_ == 0; });
    for (const Transfer& each : transfers_) {
      TFS_CHECK_EQ(each.ended, 1);
      TFS_CHECK_LE(each.placed, 1);
      if (each.place != nullptr) each.place->CheckUntouchedBehind(each.place->size());
    }
  }

 private:
  static TransferId IdOf(uint8_t name) { return {name & 1u, (name >> 1) & 1, (name >> 2) & 1u}; }

  // A message with fields of which each may be wrong.
  static Message MessageOf(Input* input) {
    Message message;
    message.kind = static_cast<MessageKind>(1 + input->Take<uint8_t>() % 4);
    message.id = IdOf(input->Take<uint8_t>());
    const auto how = input->Take<uint8_t>();
    const auto bytes = input->Take<uint16_t>();
    message.info.dims = {bytes};
    message.info.bytes = bytes;
    message.info.dtype = how;
    message.code = Code::kAborted;
    message.payload = how % 4;
    message.carries_bytes = how >= 128 && bytes <= channel::kInlineBytes;
    if (message.carries_bytes) message.body.assign(bytes, 'b');
    return message;
  }

  void Say(const Tag& tag, const std::string& bytes) {
    stranger_->Send(0, tag, bytes.data(), bytes.size(), [](const Status&) {});
  }

  Channel::Done EndOf(Transfer* transfer) {
    ++outstanding_;
    return [this, transfer](const Status& status) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++transfer->ended;
      transfer->status = status;
      --outstanding_;
      ended_.notify_all();
    };
  }

  Transfer* Begin(Channel::Request* request, const TransferId& id) {
    std::lock_guard<std::mutex> lock(mutex_);
    Transfer& transfer = transfers_.emplace_back();
    request->id = id;
    request->label = "a transfer";
    request->timeout_seconds = kMostSeconds;
    request->done = EndOf(&transfer);
    return &transfer;
  }

  void Receive(const TransferId& id) {
    Channel::Incoming in;
    Transfer* const transfer = Begin(&in, id);
    in.place = [this, transfer](const TensorInfo& info, Channel::Incoming::Place* place) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++transfer->placed;
      if (info.bytes > kMostPlaceBytes || info.dtype % 8 == 7) return InvalidArgument("it was not expected");
      transfer->place = std::make_unique<Place>(info.bytes);
      place->data = transfer->place->data();
      return Status::Ok();
    };
    channel_->Receive(channel_->NewTicket(), std::move(in));
  }

  void Send(const TransferId& id, size_t bytes) {
    Channel::Outgoing out;
    Transfer* const transfer = Begin(&out, id);
    transfer->sent = std::make_shared<std::string>(bytes, 's');
    out.info = {1, {static_cast<int64_t>(bytes)}, bytes};
    out.data = transfer->sent->data();
    out.keep_alive = transfer->sent;
    channel_->Send(channel_->NewTicket(), std::move(out));
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  int outstanding_ = 0;            // guarded by mutex_
  std::list<Transfer> transfers_;  // likewise
  std::unique_ptr<Transport> stranger_;
  std::unique_ptr<Channel> channel_;
};

std::string Say(MessageKind kind, uint8_t name, uint8_t how, uint16_t bytes) {
  return Script()
      .Put(static_cast<uint8_t>(kMessage))
      .Put(static_cast<uint8_t>(static_cast<int>(kind) - 1))
      .Put(name)
      .Put(how)
      .Put(bytes)
      .bytes();
}

std::string Act(Action action, uint8_t name) { return {static_cast<char>(action), static_cast<char>(name)}; }

std::string SayRaw(const Message& message) {
  const std::string bytes = channel::Encode(message);
  return Script()
      .Put(static_cast<uint8_t>(kRaw))
      .Put(static_cast<uint16_t>(bytes.size()))
      .PutBytes(bytes)
      .bytes();
}

std::string Payload(uint8_t payload, uint16_t bytes) {
  return Script().Put(static_cast<uint8_t>(kPayload)).Put(payload).Put(bytes).bytes();
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string hello = Say(MessageKind::kHello, 0, 0, 0);
  const std::string send =
      Script().Put(static_cast<uint8_t>(kSend)).Put(uint8_t{2}).Put(uint16_t{5000}).bytes();
  Message tensor;
  tensor.kind = MessageKind::kTensor;
  tensor.info = {1, {2, 3}, 24};
  tensor.carries_bytes = true;
  tensor.body.assign(24, 'x');
  return {
      hello + Act(kReceive, 1) + Say(MessageKind::kTensor, 1, 130, 300) + send,
      hello + Say(MessageKind::kTensor, 3, 2, 6000) + Payload(2, 6000) + Act(kReceive, 3),
      hello + Act(kReceive, 3) + Say(MessageKind::kTensor, 3, 2, 6000) + Payload(2, 5999),
      Say(MessageKind::kTensor, 3, 1, 6000) + Say(MessageKind::kCancel, 0, 1, 0) + Payload(1, 6000) +
          Act(kGiveUp, 1),
      Act(kReceive, 0) + SayRaw(tensor) + Act(kReceive, 0) + Say(MessageKind::kEnd, 0, 0, 0) + send,
  };
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tf_strategies::fuzz::Run().All({data, size});
  return 0;
}
