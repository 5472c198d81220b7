// Executes the plan of one collective over a transport, and reduces chunks as they arrive.
#ifndef OPS_COMMUNICATOR_EXECUTION_H_
#define OPS_COMMUNICATOR_EXECUTION_H_

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "ops/base/dtype.h"
#include "ops/base/status.h"
#include "ops/communicator/plan.h"
#include "ops/communicator/scratch.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

// Not thread-safe. Must outlive the transport's completions: destroy it when finished, or after
// Transport::Cancel.
class Execution {
 public:
  struct Target {
    ReduceOp op = ReduceOp::kNone;
    DType dtype = DType::kFloat32;
    std::vector<char*> parts;      // of the buffer, as the plan has them
    const char* source = nullptr;  // what sends read, where that is not the buffer: of an all-to-all
    uint32_t instance = 0;
    uint32_t signature = 0;
  };

  Execution(std::shared_ptr<const Plan> plan, const Target& target, Transport* transport,
            ScratchPool* scratch);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void Start();
  // Handles the operations that the transport has completed since the last call. Returns whether there were
  // any.
  bool Advance();

  bool finished() const { return remaining_ == 0; }
  const Status& failure() const { return failure_; }  // the first one
  int failed_peer() const { return failed_peer_; }    // -1 when there is no failure
  int last_peer() const { return last_peer_; }        // whose data arrived last, -1 when there was none
  std::set<int> PeersAwaited() const;                 // from whom something is still to come
  std::set<int> PeersToRead() const;                  // who have not taken all that was for them

 private:
  enum class Event : uint8_t { kLanded, kComplete };
  struct Happened {
    int piece;
    Event event;
  };
  struct ReceiveBuffer {  // of a receive-reduce piece
    ScratchPool::Block scratch;
    bool received = false;
  };

  size_t Bytes(const Piece& piece) const { return static_cast<size_t>(piece.range.size()) * element_bytes_; }
  char* Address(const Piece& piece) const { return target_.parts[piece.part] + piece.at * element_bytes_; }
  Tag TagOf(const Piece& piece) const { return {target_.instance, piece.message, target_.signature}; }

  template <typename Wanted>
  std::set<int> PeersOf(const Wanted& wanted) const;
  void Open(int index);
  void PostSend(int index);
  void PostCopy(int index);
  void PostReductions();
  void ReduceIfReady(int index);
  void DivideFinals(const Piece& piece);
  void Complete(int index);
  void OnSent(int index, const Status& status);
  void OnReceived(int index, Event event, const Status& status, const Received& received);
  void Fail(const Status& status, int peer);

  const std::shared_ptr<const Plan> plan_;
  const Target target_;
  const int64_t element_bytes_;
  Transport* const transport_;
  ScratchPool* const scratch_;
  const size_t scratch_bytes_;
  std::vector<int> gates_;                      // by piece: how many completions it still waits for
  std::vector<ReceiveBuffer> receive_buffers_;  // by piece
  std::vector<bool> complete_;                  // by piece
  std::vector<Happened> happened_, handling_;
  size_t next_reduction_ = 0;  // the first of plan.reductions not posted yet
  int posted_reductions_ = 0;
  size_t remaining_;
  Status failure_;
  int failed_peer_ = -1;
  int last_peer_ = -1;
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_EXECUTION_H_
