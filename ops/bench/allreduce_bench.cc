// allreduce_bench: times the core's all-reduce between processes of this machine, without TensorFlow.
//
//   allreduce_bench [--ranks P] [--algorithm NAME] [--transports UCX_TLS] [--own-tcp] [--chunk BYTES] [--seconds S] [BYTES ...]
//
// With --own-tcp the ranks use the TCP transport of this project on loopback, in place of UCX.
//
// Prints, for each message size (float32 sum), the median and the least time of one call on rank 0 in microseconds, and
// the bus bandwidth 2(P-1)/P x bytes / median.
//
//   allreduce_bench --serve FOLDER [--copy] [--ranks P] ...
//
// One contestant of benchmarks.allreduce instead (benchmarks/contestant.py has the protocol): rank r reads lines
// "BYTES CALLS" from FOLDER/orders.r, runs so many calls, and answers with a line of JSON in FOLDER/answers. With --copy a
// call only copies what a rank must move, 2(P-1)/P x bytes, in its own memory: the limit.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

#include "ops/bench/contestant.h"
#include "ops/channel/huge_pages.h"
#include "ops/communicator/communicator.h"
#include "ops/transport/tcp/tcp_transport.h"
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
  std::string serve;  // the folder of the contest
  bool copy = false;
  bool own_tcp = false;
  std::vector<std::vector<int>> sockets;  // with own_tcp: by rank, to all others
  UcxOptions ucx;
  CommunicatorOptions options;
  std::vector<int64_t> sizes;
};

// Where the processes leave their addresses for each other, and meet when they have no communicator.
struct Board {
  std::atomic<int> posted{0};
  std::atomic<int> arrived{0};
  std::atomic<int> turn{0};
  size_t bytes[kMaxRanks];
  char address[kMaxRanks][UcxWorker::kMaxAddressBytes];
};

// Large buffers have huge pages, where the machine has them, as those of NumPy that the peers get.
template <typename T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}

  T* allocate(size_t count) {
    constexpr size_t kAlignment = 64;
    const size_t bytes = (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    channel::PreferHugePages(memory, bytes);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }
  bool operator==(const Allocator&) const { return true; }
  bool operator!=(const Allocator&) const { return false; }
};

template <typename T>
using Data = std::vector<T, Allocator<T>>;

void DieUnless(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "allreduce_bench: %s\n", status.ToString().c_str());
  std::_Exit(1);
}

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
  const int turn = board->turn.load();
  if (board->arrived.fetch_add(1) == ranks - 1) {
    board->arrived.store(0);
    board->turn.store(turn + 1);
  }
  while (board->turn.load() == turn) sched_yield();
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

// Takes the sockets of one rank; those of the others are closed in this process.
Status ConnectTcp(int rank, const Arguments& arguments, CommunicatorOptions* options,
                  std::unique_ptr<Transport>* transport) {
  for (int other = 0; other < arguments.ranks; ++other) {
    if (other == rank) continue;
    for (const int socket : arguments.sockets[other]) close(socket);
  }
  options->wire = schedule::Wire::kNetwork;
  return MakeTcpTransport(rank, arguments.sockets[rank], transport);
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

// Connects two sockets over loopback.
void Connect(int* first, int* second) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  *first = socket(AF_INET, SOCK_STREAM, 0);
  const bool connected = bind(listener, where, length) == 0 && listen(listener, 1) == 0 &&
                         getsockname(listener, where, &length) == 0 && connect(*first, where, length) == 0;
  *second = connected ? accept(listener, nullptr, nullptr) : -1;
  close(listener);
  if (*second < 0) DieUnless(Internal("no connection over loopback"));
}

std::vector<std::vector<int>> ConnectAll(int ranks) {
  std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) Connect(&sockets[a][b], &sockets[b][a]);
  }
  return sockets;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.rfind("--", 0) != 0) {
      char* end = nullptr;
      arguments.sizes.push_back(std::strtoll(argv[i], &end, 10));
      if (*end != '\0' || arguments.sizes.back() < 4 || arguments.sizes.back() % 4 != 0) {
        DieUnless(InvalidArgument("BYTES are multiples of 4, not '" + flag + "'"));
      }
      continue;
    }
    if (flag == "--copy" || flag == "--own-tcp") {
      (flag == "--copy" ? arguments.copy : arguments.own_tcp) = true;
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
    } else if (flag == "--serve") {
      arguments.serve = value;
    } else if (flag == "--seconds") {
      arguments.seconds = std::atof(value.c_str());
    } else {
      DieUnless(InvalidArgument("unknown option " + flag));
    }
  }
  if (arguments.ranks < 1 || arguments.ranks > kMaxRanks || arguments.options.chunk_bytes < 0) {
    DieUnless(InvalidArgument("--ranks must be 1 to 64 and --chunk not negative"));
  }
  if (arguments.copy && arguments.serve.empty()) DieUnless(InvalidArgument("--copy needs --serve"));
  if (arguments.sizes.empty()) arguments.sizes = {4 << 10, 256 << 10, 4 << 20, 64 << 20};
  return arguments;
}

int Main(int argc, char** argv) {
  Arguments arguments = Parse(argc, argv);
  if (arguments.own_tcp) arguments.sockets = ConnectAll(arguments.ranks);
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
