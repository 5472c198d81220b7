#include "ops/communicator/c_api.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ops/base/c_interface.h"
#include "ops/communicator/communicator.h"
#include "ops/communicator/registry.h"
#include "ops/communicator/to_json.h"
#include "ops/transport/by_host.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "ops/transport/ucx.h"

namespace tf_strategies {
namespace {

// Failures on their way to Python.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Failure> failures;
  bool closed = false;
};

struct State {
  Handles<UcxWorker> workers;
  Handles<Transport> transports;
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Mailbox>> mailboxes;  // by communicator
};

State& TheState() {
  static State* state = new State;
  return *state;
}

std::shared_ptr<Mailbox> FindMailbox(int64_t communicator) {
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.mailboxes.find(communicator);
  return found == state.mailboxes.end() ? nullptr : found->second;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Split(const char* text, const int64_t* sizes, int count) {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) {
    parts.emplace_back(text, static_cast<size_t>(sizes[i]));
    text += sizes[i];
  }
  return parts;
}

Status ConnectWorker(int64_t worker, int rank, std::vector<std::string> addresses,
                     std::vector<bool> same_host, std::unique_ptr<Transport>* transport) {
  auto opened = TheState().workers.Take(worker);
  if (opened == nullptr) return InvalidArgument("no open worker has this id");
  return UcxWorker::Connect(std::move(opened), rank, std::move(addresses), std::move(same_host), transport);
}

// Keeps a transport under an id for `tfs_communicator_open`, or reports why there is none.
int Keep(const Status& status, std::unique_ptr<Transport> made, int64_t* transport) {
  if (!status.ok()) return Report(status);
  *transport = TheState().transports.Add(std::move(made));
  return 0;
}

}  // namespace
}  // namespace tf_strategies

using tf_strategies::CopyOut;
using tf_strategies::FindCommunicator;
using tf_strategies::Report;
using tf_strategies::Status;

int64_t tfs_last_error(char* text, int64_t capacity) {
  return CopyOut(tf_strategies::LastError(), text, capacity);
}

int tfs_worker_open(const char* transports, const char* net_devices, int64_t* worker, int* shares_memory) {
  std::unique_ptr<tf_strategies::UcxWorker> opened;
  const Status status = tf_strategies::UcxWorker::Open({transports, net_devices}, &opened);
  if (!status.ok()) return Report(status);
  *shares_memory = opened->shares_memory() ? 1 : 0;
  *worker = tf_strategies::TheState().workers.Add(std::move(opened));
  return 0;
}

int64_t tfs_worker_address(int64_t worker, char* address, int64_t capacity) {
  const auto copy = [&](const tf_strategies::UcxWorker& opened) {
    return CopyOut(opened.address(), address, capacity);
  };
  return tf_strategies::TheState().workers.With(worker, copy, int64_t{-1});
}

void tfs_worker_close(int64_t worker) { tf_strategies::TheState().workers.Take(worker); }

int tfs_transport_of_worker(int64_t worker, int rank, int size, const char* addresses,
                            const int64_t* address_sizes, const uint8_t* same_host, int64_t* transport) {
  std::unique_ptr<tf_strategies::Transport> made;
  const Status connected =
      tf_strategies::ConnectWorker(worker, rank, tf_strategies::Split(addresses, address_sizes, size),
                                   std::vector<bool>(same_host, same_host + size), &made);
  return tf_strategies::Keep(connected, std::move(made), transport);
}

int tfs_transport_of_sockets(int rank, int size, const int* sockets, const char* tls_folder,
                             int64_t* transport) {
  std::unique_ptr<tf_strategies::Transport> made;
  const Status taken = tf_strategies::MakeTcpTransport(rank, {sockets, sockets + size}, {tls_folder}, &made);
  return tf_strategies::Keep(taken, std::move(made), transport);
}

int tfs_transport_by_host(int64_t worker, int rank, int size, const char* addresses,
                          const int64_t* address_sizes, const int* sockets, const char* tls_folder,
                          int64_t* transport) {
  std::unique_ptr<tf_strategies::Transport> within, between, made;
  std::vector<bool> is_within;
  for (int r = 0; r < size; ++r) is_within.push_back(sockets[r] < 0);
  // The sockets first: they are taken over whatever comes.
  Status status = tf_strategies::MakeTcpTransport(rank, {sockets, sockets + size}, {tls_folder}, &between);
  const Status connected = tf_strategies::ConnectWorker(
      worker, rank, tf_strategies::Split(addresses, address_sizes, size), is_within, &within);
  if (status.ok()) status = connected;
  if (status.ok()) {
    status = tf_strategies::MakeByHostTransport(std::move(within), std::move(between), is_within, &made);
  }
  return tf_strategies::Keep(status, std::move(made), transport);
}

int tfs_communicator_open(int64_t transport, int ranks_per_host, int ranks_here, int by_network,
                          const char* peer_names, const char* algorithm, int64_t chunk_bytes,
                          double timeout_seconds, double verdict_seconds, int64_t* communicator) {
  auto wire = tf_strategies::TheState().transports.Take(transport);
  if (wire == nullptr) return Report(tf_strategies::InvalidArgument("no open transport has this id"));
  if (ranks_per_host < 1 || wire->size() % ranks_per_host != 0) {
    return Report(tf_strategies::InvalidArgument("a group of " + std::to_string(wire->size()) +
                                                 " ranks cannot have " + std::to_string(ranks_per_host) +
                                                 " on each host"));
  }

  tf_strategies::CommunicatorOptions options;
  options.algorithm = algorithm;
  options.ranks_per_host = ranks_per_host;
  options.ranks_here = ranks_here;
  if (by_network != 0) options.wire = tf_strategies::schedule::Wire::kNetwork;
  options.chunk_bytes = chunk_bytes;
  options.timeout_seconds = timeout_seconds;
  options.verdict_seconds = verdict_seconds;
  options.peer_names = tf_strategies::Lines(peer_names);
  auto mailbox = std::make_shared<tf_strategies::Mailbox>();
  std::shared_ptr<tf_strategies::Communicator> made;
  try {
    made = std::make_shared<tf_strategies::Communicator>(std::move(wire), std::move(options),
                                                         [mailbox](const tf_strategies::Failure& failure) {
                                                           std::lock_guard<std::mutex> lock(mailbox->mutex);
                                                           if (mailbox->closed) return;
                                                           mailbox->failures.push_back(failure);
                                                           mailbox->changed.notify_all();
                                                         });
  } catch (const std::system_error& error) {
    return Report(tf_strategies::ResourceExhausted(
        std::string("no thread could be started, look at the limits of memory and processes (ulimit -a): ") +
        error.what()));
  }
  *communicator = tf_strategies::RegisterCommunicator(std::move(made));
  auto& state = tf_strategies::TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.mailboxes[*communicator] = std::move(mailbox);
  return 0;
}

void tfs_communicator_end_failures(int64_t communicator) {
  const auto mailbox = tf_strategies::FindMailbox(communicator);
  if (mailbox == nullptr) return;
  std::lock_guard<std::mutex> lock(mailbox->mutex);
  mailbox->closed = true;
  mailbox->changed.notify_all();
}

void tfs_communicator_close(int64_t communicator) {
  tfs_communicator_end_failures(communicator);
  {
    auto& state = tf_strategies::TheState();
    std::lock_guard<std::mutex> lock(state.mutex);
    state.mailboxes.erase(communicator);
  }
  const auto removed = tf_strategies::RemoveCommunicator(communicator);
  if (removed != nullptr) removed->Close();
}

void tfs_communicator_also_call(int64_t former, int64_t communicator) {
  tf_strategies::AlsoCallCommunicator(former, communicator);
}

void tfs_communicator_abort(int64_t communicator, int code, const char* message) {
  const auto found = FindCommunicator(communicator);
  if (found != nullptr) found->Abort(Status(static_cast<tf_strategies::Code>(code), message));
}

int tfs_communicator_wait_failure(int64_t communicator, int timeout_ms, int* code, int* instance, int* peer,
                                  char* message, int64_t capacity, int64_t* message_size) {
  const auto mailbox = tf_strategies::FindMailbox(communicator);
  if (mailbox == nullptr) return -1;
  std::unique_lock<std::mutex> lock(mailbox->mutex);
  mailbox->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                            [&] { return mailbox->closed || !mailbox->failures.empty(); });
  if (mailbox->failures.empty()) return mailbox->closed ? -1 : 0;
  const tf_strategies::Failure failure = std::move(mailbox->failures.front());
  mailbox->failures.pop_front();
  *code = static_cast<int>(failure.status.code());
  *instance = failure.instance;
  *peer = failure.peer;
  *message_size = CopyOut(failure.status.message(), message, capacity);
  return 1;
}

int64_t tfs_communicator_describe_instance(int64_t communicator, int instance, char* text, int64_t capacity) {
  const auto found = FindCommunicator(communicator);
  return found == nullptr ? -1 : CopyOut(found->DescribeInstance(instance), text, capacity);
}

int64_t tfs_communicator_oldest_waiting(int64_t communicator, int* instance, double* seconds, double* quiet,
                                        char* text, int64_t capacity) {
  const auto found = FindCommunicator(communicator);
  if (found == nullptr) return -1;
  const auto waiting = found->OldestWaiting();
  *instance = waiting.instance;
  *seconds = waiting.seconds;
  *quiet = waiting.quiet;
  return CopyOut(waiting.description, text, capacity);
}

int64_t tfs_communicator_stats(int64_t communicator, char* json, int64_t capacity) {
  const auto found = FindCommunicator(communicator);
  if (found == nullptr) return -1;
  return CopyOut(tf_strategies::ToJson(found->stats(), found->DescribeTransport()), json, capacity);
}

int64_t tfs_communicator_records(int64_t communicator, char* json, int64_t capacity) {
  const auto found = FindCommunicator(communicator);
  if (found == nullptr) return -1;
  return CopyOut(
      tf_strategies::ToJson(found->Recorded(), found->stats().connections, found->rank(), found->size()),
      json, capacity);
}
