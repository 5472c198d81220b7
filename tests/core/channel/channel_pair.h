// The two ends of a channel in one process, transfers between them, and how these end.
#ifndef TESTS_CORE_CHANNEL_CHANNEL_PAIR_H_
#define TESTS_CORE_CHANNEL_CHANNEL_PAIR_H_

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/channel/channel.h"
#include "ops/transport/in_process.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

using Transports = std::vector<std::unique_ptr<Transport>>;
using Bytes = std::vector<char>;

inline Transports InProcess(size_t eager_bytes) {
  auto fabric = MakeInProcessFabric(2, eager_bytes);
  Transports transports;
  for (int rank : {0, 1}) transports.push_back(MakeInProcessTransport(fabric, rank));
  return transports;
}

inline Bytes Pattern(size_t bytes, int seed) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<char>(i * 31 + (i >> 8) + static_cast<size_t>(seed) * 7);
  return data;
}

// The outcome of one transfer, to wait for with a deadline. Owns the bytes.
struct Outcome {
  std::promise<Status> promise;
  std::future<Status> future = promise.get_future();
  int64_t ticket = 0;
  TensorInfo came;  // of a reception
  std::shared_ptr<Bytes> data = std::make_shared<Bytes>();

  Status Wait(double seconds = 20) {
    if (future.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
      return Internal("the test waited in vain");
    }
    return future.get();
  }
  bool Waits(double seconds = 0.1) {
    return future.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::timeout;
  }
};

using Transferred = std::shared_ptr<Outcome>;

inline Transferred Send(Channel& channel, TransferId id, Bytes bytes, double timeout = 20) {
  auto outcome = std::make_shared<Outcome>();
  *outcome->data = std::move(bytes);
  Channel::Outgoing out;
  out.id = id;
  out.label = "sending " + std::to_string(id.key);
  out.timeout_seconds = timeout;
  out.info = {3, {1, static_cast<int64_t>(outcome->data->size())}, outcome->data->size()};
  out.data = outcome->data->data();
  out.keep_alive = outcome->data;
  out.done = [outcome](const Status& status) { outcome->promise.set_value(status); };
  outcome->ticket = channel.NewTicket();
  channel.Send(outcome->ticket, std::move(out));
  return outcome;
}

inline Transferred Receive(Channel& channel, TransferId id, double timeout = 20,
                           Status verdict = Status::Ok()) {
  auto outcome = std::make_shared<Outcome>();
  Channel::Incoming in;
  in.id = id;
  in.label = "receiving " + std::to_string(id.key);
  in.timeout_seconds = timeout;
  in.place = [outcome, verdict](const TensorInfo& info, Channel::Incoming::Place* place) {
    outcome->came = info;
    outcome->data->resize(info.bytes);
    *place = {outcome->data->data(), outcome->data};
    return verdict;
  };
  in.done = [outcome](const Status& status) { outcome->promise.set_value(status); };
  outcome->ticket = channel.NewTicket();
  channel.Receive(outcome->ticket, std::move(in));
  return outcome;
}

struct Pair {
  std::unique_ptr<Channel> worker, server;

  explicit Pair(Transports transports) {
    worker = std::make_unique<Channel>(std::move(transports[0]), "worker 0 (a:1)", "ps 1 (b:2)");
    server = std::make_unique<Channel>(std::move(transports[1]), "ps 1 (b:2)", "worker 0 (a:1)");
  }
};

inline bool Has(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_CHANNEL_CHANNEL_PAIR_H_
