// allreduce_bench: times the core's all-reduce between processes of this machine, without TensorFlow.
//
//   allreduce_bench [--ranks P] [--algorithm NAME] [--transports UCX_TLS] [--chunk BYTES] [--seconds S] [BYTES ...]
//
// Prints, for each message size (float32 sum), the median and the least time of one call on rank 0 in microseconds, and
// the bus bandwidth 2(P-1)/P x bytes / median.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/communicator/communicator.h"
#include "ops/transport/ucx.h"

namespace tf_strategies {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kWarmUps = 10;
constexpr int kFewestCalls = 20;
constexpr int kMostCalls = 20000;

struct Arguments {
  int ranks = 2;
  double seconds = 1;
  UcxOptions ucx;
  CommunicatorOptions options;
  std::vector<int64_t> sizes;
};

// Where the processes leave their addresses for each other.
struct Board {
  std::atomic<int> posted{0};
  size_t bytes[kMaxRanks];
  char address[kMaxRanks][UcxWorker::kMaxAddressBytes];
};

void DieUnless(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "allreduce_bench: %s\n", status.ToString().c_str());
  std::_Exit(1);
}

void AllReduce(Communicator& communicator, ReduceOp op, std::vector<float>* data) {
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
  std::vector<float> data(static_cast<size_t>(bytes / 4), 0.0f);
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::duration<double>(arguments.seconds);
  std::vector<float> more{1};
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

void RunRank(int rank, const Arguments& arguments, Board* board) {
  std::unique_ptr<UcxWorker> worker;
  DieUnless(UcxWorker::Open(arguments.ucx, &worker));
  board->bytes[rank] = worker->address().size();
  std::memcpy(board->address[rank], worker->address().data(), worker->address().size());
  board->posted.fetch_add(1);
  while (board->posted.load() < arguments.ranks) usleep(100);
  std::vector<std::string> addresses;
  for (int r = 0; r < arguments.ranks; ++r) addresses.emplace_back(board->address[r], board->bytes[r]);
  std::unique_ptr<Transport> transport;
  DieUnless(UcxWorker::Connect(std::move(worker), rank, std::move(addresses),
                               std::vector<bool>(arguments.ranks, true), &transport));
  Communicator communicator(std::move(transport), arguments.options, nullptr);
  for (int64_t bytes : arguments.sizes) Measure(communicator, arguments, bytes);
  if (rank == 0) std::printf("transport: %s\n", communicator.DescribeTransport().c_str());
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.rfind("--", 0) != 0) {
      arguments.sizes.push_back(std::atoll(argv[i]));
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--ranks") {
      arguments.ranks = std::atoi(value.c_str());
    } else if (flag == "--algorithm") {
      arguments.options.algorithm = value;
    } else if (flag == "--transports") {
      arguments.ucx.transports = value;
      if (value.find("tcp") != std::string::npos) arguments.ucx.net_devices = "lo";
    } else if (flag == "--chunk") {
      arguments.options.chunk_bytes = std::atoll(value.c_str());
    } else if (flag == "--seconds") {
      arguments.seconds = std::atof(value.c_str());
    } else {
      DieUnless(InvalidArgument("unknown option " + flag));
    }
  }
  if (arguments.ranks < 1 || arguments.ranks > kMaxRanks || arguments.options.chunk_bytes < 1) {
    DieUnless(InvalidArgument("--ranks must be 1 to 64 and --chunk at least 1"));
  }
  if (arguments.sizes.empty()) arguments.sizes = {4 << 10, 256 << 10, 4 << 20, 64 << 20};
  return arguments;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) DieUnless(Internal("no shared memory for the addresses"));
  auto* board = new (shared) Board;
  std::printf("%d ranks\n%12s %12s %12s %10s\n", arguments.ranks, "bytes", "median us", "least us",
              "bus GB/s");
  std::fflush(stdout);
  for (int rank = 1; rank < arguments.ranks; ++rank) {
    if (fork() == 0) {
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
