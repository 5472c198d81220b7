// The command line of allreduce_bench.
#ifndef OPS_BENCH_ALLREDUCE_ARGUMENTS_H_
#define OPS_BENCH_ALLREDUCE_ARGUMENTS_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/base/status.h"
#include "ops/bench/die_unless.h"
#include "ops/communicator/communicator.h"
#include "ops/transport/ucx.h"

namespace tf_strategies {

constexpr int kMaxRanks = 64;

struct Arguments {
  int ranks = 2;
  double seconds = 1;
  std::string serve;  // the folder for orders and answers; see contestant.h
  bool copy = false;
  bool own_tcp = false;
  std::string tls;                        // the folder of the certificates; with own_tcp
  std::vector<std::vector<int>> sockets;  // with own_tcp: by rank, the sockets to all ranks
  UcxOptions ucx;
  CommunicatorOptions options;
  std::vector<int64_t> sizes;
};

// Ends the process with a message if an argument is wrong.
inline Arguments Parse(int argc, char** argv) {
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
    } else if (flag == "--tls") {
      arguments.tls = value;
      arguments.own_tcp = true;
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

}  // namespace tf_strategies

#endif  // OPS_BENCH_ALLREDUCE_ARGUMENTS_H_
