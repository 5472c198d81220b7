// allreduce_bench: times the core's all-reduce between processes of this machine, without TensorFlow.
//
//   allreduce_bench [--ranks P] [--algorithm NAME] [--transports UCX_TLS] [--own-tcp] [--tls FOLDER] [--chunk BYTES] [--seconds S] [BYTES ...]
//
// With --own-tcp the ranks use the TCP transport of this project on loopback, in place of UCX; with --tls too, over TLS with the
// ca.crt, task.crt and task.key of a folder.
//
// Prints, for each message size (float32 sum), the median and the least time of one call on rank 0 in microseconds, and
// the bus bandwidth 2(P-1)/P x bytes / median.
//
//   allreduce_bench --serve FOLDER [--copy] [--ranks P] ...
//
// runs one contestant of benchmarks.allreduce (benchmarks/contestant.py has the protocol): rank r reads lines "BYTES CALLS"
// from FOLDER/orders.r, runs this number of calls, and answers with a line of JSON in FOLDER/answers. With --copy a call
// only copies the bytes that a rank must move, 2(P-1)/P x bytes, in its own memory. This is the limit.

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ops/bench/allreduce_arguments.h"
#include "ops/bench/contestant.h"
#include "ops/bench/die_unless.h"
#include "ops/bench/huge_page_data.h"
#include "ops/communicator/communicator.h"
#include "ops/transport/loopback.h"
#include "ops/transport/tcp/tcp_transport.h"
#include "ops/transport/ucx.h"

namespace tf_strategies {
namespace {

constexpr int kWarmUps = 10;
constexpr int kFewestCalls = 20;
constexpr int kMostCalls = 20000;

// Shared memory in which the processes exchange addresses, and a barrier for those without a communicator.
struct Board {
  std::atomic<int> posted{0};
  std::atomic<int> arrived{0};
  std::atomic<int> round{0};
  size_t bytes[kMaxRanks];
  char address[kMaxRanks][UcxWorker::kMaxAddressBytes];
};

void AllReduce(Communicator& communicator, ReduceOp op, Data<float>* data) {
  std::promise<Status> promise;
  Communicator::Request request;
  request.name = "benchmark";
  request.data = data->data();
  request.count = static_cast<int64_t>(data->size());
  request.done = [&](const Status& status) { promise.set_value(status); };
  communicator.AllReduce(op, std::move(request));
  DieUnless(promise.get_future().get());
}

void Measure(Communicator& communicator, const Arguments& arguments, int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  Data<float> data(static_cast<size_t>(bytes / 4), 0.0f);
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(arguments.seconds);
  Data<float> more{1};
  for (int call = -kWarmUps; more[0] > 0 && call < kMostCalls; ++call) {
    const auto start = Clock::now();
    AllReduce(communicator, ReduceOp::kSum, &data);
    if (call >= 0) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (call >= kFewestCalls && call % kFewestCalls == 0) {
      more[0] = Clock::now() < end ? 1.0f : 0.0f;
      AllReduce(communicator, ReduceOp::kMin, &more);
    }
  }
  if (communicator.rank() != 0) return;
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const int ranks = communicator.size();
  std::printf("%12lld %12.1f %12.1f %10.2f\n", static_cast<long long>(bytes), median, times.front(),
              2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / median / 1e3);
  std::fflush(stdout);
}

void Barrier(Communicator& communicator) {
  std::promise<Status> promise;
  Communicator::Request request;
  request.name = "start together";
  request.done = [&](const Status& status) { promise.set_value(status); };
  communicator.Barrier(std::move(request));
  DieUnless(promise.get_future().get());
}

void Meet(Board* board, int ranks) {
  const int round = board->round.load();
  if (board->arrived.fetch_add(1) == ranks - 1) {
    board->arrived.store(0);
    board->round.store(round + 1);
  }
  while (board->round.load() == round) sched_yield();
}

void ServeAllReduce(Communicator& communicator, const std::string& folder) {
  Data<float> data;
  Contestant contestant;
  contestant.rank = communicator.rank();
  contestant.barrier = [&] { Barrier(communicator); };
  contestant.call = [&] { AllReduce(communicator, ReduceOp::kSum, &data); };
  contestant.prepare = [&](int64_t bytes) {
    data = Data<float>();
    ForgetPeak();
    data.assign(static_cast<size_t>(bytes / 4), static_cast<float>(communicator.rank() + 1));
    contestant.call();
    const int ranks = communicator.size();
    for (float value : data) {
      if (value != static_cast<float>(ranks * (ranks + 1) / 2)) DieUnless(Internal("the sum is wrong"));
    }
    std::fill(data.begin(), data.end(), 0.0f);
  };
  DieUnless(Serve(contestant, folder));
}

void ServeCopy(int rank, const Arguments& arguments, Board* board) {
  Data<char> from, to;
  Contestant contestant;
  contestant.rank = rank;
  contestant.barrier = [&] { Meet(board, arguments.ranks); };
  contestant.prepare = [&](int64_t bytes) {
    from.assign(static_cast<size_t>(bytes), 1);
    to.assign(static_cast<size_t>(bytes), 2);
  };
  contestant.call = [&] {
    size_t left = 2 * (arguments.ranks - 1) * from.size() / arguments.ranks;
    while (left > 0) {
      const size_t part = std::min(left, from.size());
      std::memcpy(to.data(), from.data(), part);
      asm volatile("" ::"r"(to.data()) : "memory");
      left -= part;
    }
  };
  DieUnless(Serve(contestant, arguments.serve));
}

Status ConnectUcx(int rank, const Arguments& arguments, Board* board, CommunicatorOptions* options,
                  std::unique_ptr<Transport>* transport) {
  std::unique_ptr<UcxWorker> worker;
  TFS_RETURN_IF_ERROR(UcxWorker::Open(arguments.ucx, &worker));
  if (!worker->shares_memory()) options->wire = schedule::Wire::kNetwork;
  board->bytes[rank] = worker->address().size();
  std::memcpy(board->address[rank], worker->address().data(), worker->address().size());
  board->posted.fetch_add(1);
  while (board->posted.load() < arguments.ranks) usleep(100);
  std::vector<std::string> addresses;
  for (int r = 0; r < arguments.ranks; ++r) addresses.emplace_back(board->address[r], board->bytes[r]);
  return UcxWorker::Connect(std::move(worker), rank, std::move(addresses),
                            std::vector<bool>(arguments.ranks, true), transport);
}

// Uses the sockets of one rank, and closes those of the other ranks in this process.
Status ConnectTcp(int rank, const Arguments& arguments, CommunicatorOptions* options,
                  std::unique_ptr<Transport>* transport) {
  for (int other = 0; other < arguments.ranks; ++other) {
    if (other == rank) continue;
    for (const int socket : arguments.sockets[other]) close(socket);
  }
  options->wire = schedule::Wire::kNetwork;
  return MakeTcpTransport(rank, arguments.sockets[rank], {arguments.tls}, transport);
}

void RunRank(int rank, const Arguments& arguments, Board* board) {
  if (arguments.copy) return ServeCopy(rank, arguments, board);
  CommunicatorOptions options = arguments.options;
  options.ranks_here = arguments.ranks;
  std::unique_ptr<Transport> transport;
  DieUnless(arguments.own_tcp ? ConnectTcp(rank, arguments, &options, &transport)
                              : ConnectUcx(rank, arguments, board, &options, &transport));
  Communicator communicator(std::move(transport), options, nullptr);
  if (!arguments.serve.empty()) return ServeAllReduce(communicator, arguments.serve);
  for (int64_t bytes : arguments.sizes) Measure(communicator, arguments, bytes);
  if (rank == 0) std::printf("transport: %s\n", communicator.DescribeTransport().c_str());
}

int Main(int argc, char** argv) {
  Arguments arguments = Parse(argc, argv);
  if (arguments.own_tcp) DieUnless(ConnectAllOverLoopback(arguments.ranks, &arguments.sockets));
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) DieUnless(Internal("no shared memory for the addresses"));
  auto* board = new (shared) Board;
  if (arguments.serve.empty()) {
    std::printf("%d ranks\n%12s %12s %12s %10s\n", arguments.ranks, "bytes", "median us", "least us",
                "bus GB/s");
    std::fflush(stdout);
  }
  for (int rank = 1; rank < arguments.ranks; ++rank) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      RunRank(rank, arguments, board);
      std::_Exit(0);
    }
  }
  RunRank(0, arguments, board);
  int failed = 0;
  for (int status; wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tf_strategies

int main(int argc, char** argv) { return tf_strategies::Main(argc, argv); }
