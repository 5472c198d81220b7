// Communicator: a group of ranks that run collectives over one Transport.
//
// A progress thread moves and reduces data. Callers only submit. For a small message on an idle communicator
// the caller's thread polls for a moment, which saves two context switches. Any number of collectives may be
// in flight. They are matched by `instance`, so ranks may submit them in any order.
//
// Failure: the first failure poisons the communicator. It is handed to `on_failure` (once), every outstanding
// request fails, and every later one fails at once with the same cause. A *suspected failure* (a mismatch, a
// missed deadline or a broken connection on this rank) is first reported to the control plane through
// `on_failure`. The control plane answers with Abort, so that all ranks report the same cause with both sides.
// Without an answer within `verdict_seconds`, the local cause is used.
#ifndef OPS_COMMUNICATOR_COMMUNICATOR_H_
#define OPS_COMMUNICATOR_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/base/status.h"
#include "ops/communicator/recorder.h"
#include "ops/schedule/group.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

struct CommunicatorOptions {
  std::string algorithm = "auto";  // or a name of schedule::AllReduceAlgorithms
  int ranks_per_host = 1;          // as schedule::Group has it; the same on all ranks, as is the wire
  schedule::Wire wire = schedule::Wire::kSharedMemory;
  int ranks_here = 1;                   // that share the cores of this rank's host, itself included
  int64_t chunk_bytes = 0;              // unit of pipelining, 0: by the wire; the same on all ranks
  double timeout_seconds = 600;         // how long a collective may wait for its peers
  double verdict_seconds = 2;           // set by the caller: how long a suspicion waits for the control plane
  std::vector<std::string> peer_names;  // "worker 2 (10.0.0.3:2222)", one a rank, for messages; may be empty
};

struct Failure {
  Status status;
  int instance = -1;  // the collective in which it was seen, or -1
  int peer = -1;      // the other rank, or -1
};

struct CommunicatorStats {
  struct PerAlgorithm {
    int64_t calls = 0;
    int64_t bytes = 0;   // of payload: count x element size
    double seconds = 0;  // from submission to completion, summed over calls
  };
  std::vector<PerAlgorithm> all_reduce;  // by position in schedule::AllReduceAlgorithms
  PerAlgorithm broadcast;
  PerAlgorithm all_gather;
  PerAlgorithm all_to_all;
  PerAlgorithm barrier;
  TransportCounters wire;
  std::vector<ConnectionCounters> connections;
  int64_t bytes_staged = 0;  // copied from a GPU to this host for collectives; the results are copied back
  double seconds_outstanding = 0;  // in which at least one collective was outstanding
};

class Engine;

class Communicator {
 public:
  using Done = std::function<void(const Status&)>;

  struct Part {
    void* data = nullptr;
    int64_t count = 0;  // elements, at least 1
  };

  struct Request {
    std::string name;  // for messages: "gradients/3"
    std::string
        layout;  // how the elements are to be read, if that may differ: "float32[3] by int64"; must agree
    std::string shape;  // must agree between ranks: "[128,10]", "[3,3] [3]"; part of messages
    int instance =
        0;  // 0..65535; the same on all ranks for the same collective, unique among those in flight
    DType dtype = DType::kFloat32;
    void* data = nullptr;  // [count] elements, in place; valid until done is called
    int64_t count = 0;
    std::vector<Part> parts;  // of an all-reduce: its elements, in several places; data and count are ignored
    const void* source = nullptr;  // of an all-to-all: what is sent
    bool may_poll = true;  // whether the caller's thread may poll for a small message, for a few milliseconds
    std::shared_ptr<void>
        keep_alive;  // whatever owns data and source; after a failure kept until the communicator is destroyed
    Done
        done;  // called once, on the progress thread or inside a call, maybe another caller's: must not block
  };

  Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options,
               std::function<void(const Failure&)> on_failure);
  ~Communicator();

  // Fails outstanding collectives with kCancelled and ends the progress thread. Must not be called from a
  // completion. May be called again; the destructor calls it, too.
  void Close();

  int rank() const;
  int size() const;

  void AllReduce(ReduceOp op, Request request);
  void Broadcast(int root, Request request);
  // data is [offsets.back()] elements; this rank's part [offsets[rank], offsets[rank+1]) is filled in by the caller.
  void AllGather(std::vector<int64_t> offsets, Request request);
  // source is [send_offsets.back()] elements, of which [send_offsets[j], send_offsets[j+1]) go to rank j;
  // data becomes [receive_offsets.back()] elements, the ranks' segments by rank. The caller copies the
  // segment of this rank for itself. Both offsets have size + 1 entries, from 0. Two ranks must use the same
  // length and shape for their segment. A rank waits only for ranks with which it exchanges data.
  void AllToAll(std::vector<int64_t> send_offsets, std::vector<int64_t> receive_offsets, Request request);
  void Barrier(Request request);  // data and count are ignored

  // Poisons the communicator, or answers a suspected failure. Thread-safe. The first cause is kept.
  void Abort(Status cause);

  // Reports that this rank could not begin a collective for which its peers wait: a suspected failure.
  // Thread-safe.
  void Report(int instance, Status cause);

  // The last collective of this rank on an instance ("all_reduce 'gradients/3': float32[128], sum"), or
  // "nothing".
  std::string DescribeInstance(int instance) const;

  // The oldest outstanding collective, the seconds it has waited, and the seconds since data last moved, which are
  // as exact as the calls are frequent; instance -1 when idle.
  struct Waiting {
    int instance = -1;
    double seconds = 0;
    double quiet = 0;
    std::string description;
  };
  Waiting OldestWaiting() const;

  CommunicatorStats stats() const;
  void CountStaged(int64_t bytes) { bytes_staged_ += bytes; }  // for the statistics
  Recorder Recorded() const;                                   // a copy
  std::string DescribeTransport() const;

 private:
  std::unique_ptr<Engine> engine_;
  std::atomic<int64_t> bytes_staged_{0};
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_COMMUNICATOR_H_
