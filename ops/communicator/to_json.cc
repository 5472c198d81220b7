#include "ops/communicator/to_json.h"

#include <chrono>
#include <cstdio>
#include <sstream>

#include "ops/base/dtype.h"
#include "ops/communicator/collective.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

// Escapes what JSON does not allow in a string. UTF-8 stays as it is.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

void AppendCounts(std::ostringstream* json, const char* kind, const char* algorithm,
                  const CommunicatorStats::PerAlgorithm& counts, bool* first) {
  if (counts.calls == 0) return;
  *json << (*first ? "" : ", ") << "{\"kind\": \"" << kind << "\", \"algorithm\": \"" << algorithm
        << "\", \"calls\": " << counts.calls << ", \"bytes\": " << counts.bytes
        << ", \"seconds\": " << counts.seconds << "}";
  *first = false;
}

// The algorithms of the other kinds than all-reduce, which has several.
const char* AlgorithmOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kBroadcast: return "binomial_tree";
    case CollectiveKind::kAllGather: return "ring";
    case CollectiveKind::kAllToAll: return "pairwise";
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBarrier: break;
  }
  return "recursive_doubling";
}

template <typename Clock>
int64_t Nanoseconds(std::chrono::time_point<Clock> when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

void Append(std::ostringstream* json, const Recorder::Entry& entry) {
  const Collective& collective = *entry.collective;
  const char* const algorithm = collective.algorithm >= 0
                                    ? schedule::AllReduceAlgorithms()[collective.algorithm].name
                                    : AlgorithmOf(collective.kind);
  *json << "{\"number\": " << entry.number << ", \"kind\": \"" << CollectiveKindName(collective.kind)
        << "\", \"name\": " << Quoted(collective.name) << ", \"instance\": " << entry.instance
        << ", \"use\": " << entry.use << ", \"algorithm\": \"" << algorithm << "\", \"dtype\": \""
        << DTypeName(collective.dtype)
        << "\", \"bytes\": " << collective.count * static_cast<int64_t>(DTypeSize(collective.dtype))
        << ", \"submitted_ns\": " << Nanoseconds(entry.submitted)
        << ", \"started_ns\": " << Nanoseconds(entry.started)
        << ", \"ended_ns\": " << Nanoseconds(entry.ended) << ", \"last_peer\": " << entry.last_peer
        << ", \"code\": " << static_cast<int>(entry.code) << "}";
}

void Append(std::ostringstream* json, const std::vector<ConnectionCounters>& connections) {
  *json << "[";
  bool first = true;
  for (const ConnectionCounters& each : connections) {
    *json << (first ? "" : ", ") << "{\"peer\": " << each.peer << ", \"messages\": " << each.messages
          << ", \"bytes\": " << each.bytes << ", \"seconds\": " << each.seconds << "}";
    first = false;
  }
  *json << "]";
}

}  // namespace

std::string ToJson(const CommunicatorStats& stats, const std::string& transport) {
  std::ostringstream json;
  json.precision(17);  // so that differences of long times are exact
  json << "{\"transport\": " << Quoted(transport) << ", \"bytes_sent\": " << stats.wire.bytes_sent
       << ", \"bytes_received\": " << stats.wire.bytes_received
       << ", \"messages_sent\": " << stats.wire.messages_sent
       << ", \"messages_received\": " << stats.wire.messages_received
       << ", \"bytes_staged\": " << stats.bytes_staged
       << ", \"seconds_outstanding\": " << stats.seconds_outstanding << ", \"collectives\": [";
  bool first = true;
  for (size_t i = 0; i < stats.all_reduce.size(); ++i) {
    AppendCounts(&json, "all_reduce", schedule::AllReduceAlgorithms()[i].name, stats.all_reduce[i], &first);
  }
  const auto append = [&](CollectiveKind kind, const CommunicatorStats::PerAlgorithm& counts) {
    AppendCounts(&json, CollectiveKindName(kind), AlgorithmOf(kind), counts, &first);
  };
  append(CollectiveKind::kBroadcast, stats.broadcast);
  append(CollectiveKind::kAllGather, stats.all_gather);
  append(CollectiveKind::kAllToAll, stats.all_to_all);
  append(CollectiveKind::kBarrier, stats.barrier);
  json << "], \"connections\": ";
  Append(&json, stats.connections);
  json << "}";
  return json.str();
}

std::string ToJson(const Recorder& recorder, const std::vector<ConnectionCounters>& connections, int rank,
                   int size) {
  std::ostringstream json;
  json.precision(17);
  json << "{\"rank\": " << rank << ", \"size\": " << size
       << ", \"monotonic_ns\": " << Nanoseconds(Recorder::Clock::now())
       << ", \"unix_ns\": " << Nanoseconds(std::chrono::system_clock::now()) << ", \"collectives\": [";
  bool first = true;
  for (const Recorder::Entry& entry : recorder.Entries()) {
    json << (first ? "" : ", ");
    Append(&json, entry);
    first = false;
  }
  json << "], \"connections\": ";
  Append(&json, connections);
  json << "}";
  return json.str();
}

}  // namespace tf_strategies
