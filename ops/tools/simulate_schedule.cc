// Predicts the time of all-reduces over simulated clusters, and prints it as CSV. benchmarks/simulate.py draws it.
//
//   simulate_schedule --algorithms ring,binary_blocks --topologies alpha_beta,nvlink --sizes 8,24 --bytes 1024,1048576
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "ops/analysis/cost.h"
#include "ops/analysis/simulate.h"
#include "ops/analysis/verify.h"
#include "ops/schedule/algorithms.h"
#include "ops/schedule/choose.h"

namespace tf_strategies::schedule {
namespace {

constexpr int64_t kElementBytes = 4;
constexpr int64_t kLargestSize = 4096;
constexpr int64_t kLargestBytes = int64_t{1} << 34;
// The limit for 'executor', which holds all operations of all ranks in memory, about a hundred bytes each.
constexpr int64_t kLargestExecutorSize = 128;
const char* const kExecutor = "executor";
const std::string kHierarchical = "hierarchical";

struct Options {
  std::vector<std::string> algorithms;
  std::vector<std::string> topologies;
  std::vector<int64_t> sizes;
  std::vector<int64_t> bytes;
};

std::string Usage() {
  std::string algorithms;
  for (const Algorithm& algorithm : AllReduceAlgorithms()) algorithms += std::string(algorithm.name) + ", ";
  std::string topologies;
  for (const Topology& topology : Topologies()) topologies += topology.name + ", ";
  return "usage: simulate_schedule --algorithms A,... --topologies T,... --sizes P,... --bytes N,...\n"
         "  A  " +
         algorithms + kHierarchical + " (inside hosts first, binary_blocks across), " + kHierarchical +
         ":NAME\n"
         "  T  " +
         topologies + kExecutor + " (shared memory, chunks and steps overlap; up to " +
         std::to_string(kLargestExecutorSize) +
         " ranks)\n"
         "  P  ranks, 2 to " +
         std::to_string(kLargestSize) +
         "\n"
         "  N  bytes of float32, a multiple of 4 up to " +
         std::to_string(kLargestBytes) + "\n";
}

int Refuse(const std::string& why) {
  std::cerr << "simulate_schedule: " << why << "\n" << Usage();
  return 2;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char character : text) {
    if (character == ',') {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

// Parses integers that are separated by commas. Returns false if a part is not an integer in [least, most].
bool ParseIntegers(const std::string& text, int64_t least, int64_t most, std::vector<int64_t>* values) {
  for (const std::string& part : Split(text)) {
    char* end = nullptr;
    errno = 0;
    values->push_back(std::strtoll(part.c_str(), &end, 10));
    if (part.empty() || *end != '\0' || errno != 0 || values->back() < least || values->back() > most) {
      return false;
    }
  }
  return true;
}

// Returns the all-reduce across hosts for "hierarchical" or "hierarchical:NAME", and nullptr for other names.
const Algorithm* Across(const std::string& name) {
  if (name == kHierarchical) return FindAlgorithm("binary_blocks");
  if (name.rfind(kHierarchical + ":", 0) != 0) return nullptr;
  return FindAlgorithm(name.substr(kHierarchical.size() + 1));
}

// Returns the group that a communicator on this topology would have.
Group GroupOn(const Topology& topology, int size) {
  if (size <= topology.per_host) return Group(size, size, Wire::kSharedMemory);
  return Group(size, size % topology.per_host == 0 ? topology.per_host : 1, Wire::kNetwork);
}

void PrintRow(const std::string& topology, const std::string& algorithm, const Group& group, int64_t bytes,
              double seconds, int64_t messages, const Link* busiest, double busy) {
  std::printf("%s,%s,%d,%lld,%.9g,%lld,%s,%.4f,%d\n", topology.c_str(), algorithm.c_str(), group.size,
              static_cast<long long>(bytes), seconds, static_cast<long long>(messages),
              busiest ? busiest->name.c_str() : "", busy, algorithm == Choose(group, bytes).name ? 1 : 0);
  std::fflush(stdout);
}

// Prints the simulated time, and the link that is in use for the largest part of the time.
void PrintSimulated(const Topology& topology, const std::string& algorithm, int64_t bytes,
                    const GroupProgram& program) {
  const Simulated simulated = Simulate(program, kElementBytes, topology);
  const Network network(topology, program.size);
  const Link* busiest = nullptr;
  double busy = 0;
  for (size_t i = 0; i < network.links().size(); ++i) {
    const double part = simulated.carried[i] / network.links()[i].bandwidth / simulated.seconds;
    if (part <= busy) continue;
    busiest = &network.links()[i];
    busy = part;
  }
  PrintRow(topology.name, algorithm, GroupOn(topology, program.size), bytes, simulated.seconds,
           simulated.messages, busiest, busy);
}

// Prints the prediction for a communicator on one host, with chunks of 64 Ki elements and overlapping steps.
void PrintExecutor(const std::string& algorithm, int size, int64_t bytes, const BuildRank& build) {
  CostModel model;
  model.chunk_elements = 64 << 10;
  model.steps_overlap = true;
  const double seconds = PredictSeconds(size, kElementBytes, model, build);
  PrintRow(kExecutor, algorithm, Group(size), bytes, seconds, CountGroupCost(size, build).total.messages_sent,
           nullptr, 0);
}

// Verifies a schedule, and predicts its time on all topologies. A hierarchical schedule is built for the number of ranks
// per host. Topologies in which this is 1 or does not divide the size are left out.
Status Play(const std::string& algorithm, int size, int64_t bytes,
            const std::vector<std::string>& topologies) {
  const int64_t count = bytes / kElementBytes;
  const Algorithm* const across = Across(algorithm);
  GroupProgram program;
  int packed_per_host = 0;  // per_host of the packed program; 1 if it is not hierarchical
  for (const std::string& name : topologies) {
    const Topology* const topology = name == kExecutor ? nullptr : FindTopology(name);
    const int per_host = across == nullptr ? 1 : topology == nullptr ? 1 : topology->per_host;
    if (across != nullptr && (per_host == 1 || size % per_host != 0)) continue;
    const BuildRank build = [&](int rank) {
      return across ? Hierarchical(rank, size, count, per_host, across->build)
                    : FindAlgorithm(algorithm)->build(rank, size, count);
    };
    if (packed_per_host != per_host) {
      TFS_RETURN_IF_ERROR(VerifyAllReduce(size, count, build));
      TFS_RETURN_IF_ERROR(PackGroup(size, count, build, &program));
      packed_per_host = per_host;
    }
    if (topology != nullptr) {
      PrintSimulated(*topology, algorithm, bytes, program);
    } else if (size <= kLargestExecutorSize) {
      PrintExecutor(algorithm, size, bytes, build);
    }
  }
  return Status::Ok();
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      std::cout << Usage();
      return 0;
    }
    if (i + 1 == arguments.size()) return Refuse(argument + " needs a value");
    const std::string& value = arguments[i + 1];
    if (argument == "--algorithms") {
      options.algorithms = Split(value);
    } else if (argument == "--topologies") {
      options.topologies = Split(value);
    } else if (argument == "--sizes") {
      if (!ParseIntegers(value, 2, kLargestSize, &options.sizes)) {
        return Refuse("--sizes '" + value + "' are not whole numbers from 2 to " +
                      std::to_string(kLargestSize));
      }
    } else if (argument == "--bytes") {
      if (!ParseIntegers(value, kElementBytes, kLargestBytes, &options.bytes)) {
        return Refuse("--bytes '" + value + "' are not whole numbers from 4 to " +
                      std::to_string(kLargestBytes));
      }
    } else {
      return Refuse("there is no option '" + argument + "'");
    }
  }
  for (const std::string& name : options.algorithms) {
    if (!FindAlgorithm(name) && !Across(name)) return Refuse("there is no algorithm '" + name + "'");
  }
  for (const std::string& name : options.topologies) {
    if (name != kExecutor && !FindTopology(name)) return Refuse("there is no topology '" + name + "'");
  }
  for (int64_t bytes : options.bytes) {
    if (bytes % kElementBytes != 0) {
      return Refuse("--bytes " + std::to_string(bytes) + " is not a multiple of " +
                    std::to_string(kElementBytes));
    }
  }
  if (options.algorithms.empty() || options.topologies.empty() || options.sizes.empty() ||
      options.bytes.empty()) {
    return Refuse("--algorithms, --topologies, --sizes and --bytes are all needed");
  }

  std::cout << "topology,algorithm,size,bytes,seconds,messages,busiest_link,busy,chosen" << std::endl;
  for (int64_t size : options.sizes) {
    for (const std::string& algorithm : options.algorithms) {
      for (int64_t bytes : options.bytes) {
        const Status played = Play(algorithm, static_cast<int>(size), bytes, options.topologies);
        if (played.ok()) continue;
        std::cerr << "simulate_schedule: " << algorithm << " over " << size
                  << " ranks is wrong: " << played.message() << "\n";
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tf_strategies::schedule

int main(int argc, char** argv) {
  return tf_strategies::schedule::Main(std::vector<std::string>(argv + 1, argv + argc));
}
