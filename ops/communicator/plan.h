// A plan is a schedule that is cut into chunks, with the dependencies of each chunk. An execution reads it.
//
// Cutting: chunks lie on a grid of `chunk_elements`, the same on all ranks, so that sender and receiver cut a
// range in the same way. If the buffer consists of several parts of memory, no chunk spans two parts, so they
// need not be copied together.
//
// Waiting: a *gate* counts the earlier pieces whose elements a piece touches. It delays
//   a send           until the elements it reads are final,
//   a receive-copy   until no piece needs the elements it overwrites (the memory is passed to the transport),
//   a receive-reduce only before it adds into the buffer: data that arrive earlier go to scratch memory.
//
// Final: elements that a receive-reduce is the last to write on this rank hold the result after the addition.
// The other elements of the result are copied from a rank where they were final.
#ifndef OPS_COMMUNICATOR_PLAN_H_
#define OPS_COMMUNICATOR_PLAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ops/base/status.h"
#include "ops/schedule/step.h"

namespace tf_strategies {

// The limit of messages from one rank to another in one collective, from the bits of a tag.
constexpr int kMostMessages = 1 << 13;

struct Piece {
  schedule::ActionKind kind = schedule::ActionKind::kSend;
  int peer = 0;
  schedule::Range range;
  int part = 0;          // of the memory
  int64_t at = 0;        // where its elements lie in the part: the first one's position
  uint32_t message = 0;  // position among the messages from the sender to the receiver
  int gate = 0;          // how many earlier pieces must be complete
  int first_dependent = 0, last_dependent = 0;  // dependents[first, last) wait for this piece
  int first_final = 0, last_final = 0;          // finals[first, last): what this piece is the last to write
};

struct Plan {
  std::vector<Piece> pieces;
  std::vector<int> dependents;  // indices of pieces
  std::vector<schedule::Range> finals;
  std::vector<int> reductions;    // the receive-reduce pieces, in the order of the schedule
  int64_t largest_reduction = 0;  // elements
};

// The position in memory of the first element of an action.
using Locate = std::function<int64_t(const schedule::Action&)>;

// chunk_elements >= 1. Fails if a pair of ranks would exchange more messages than a tag can number. The
// memory is the buffer of the schedule, in one part.
Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements,
                std::shared_ptr<const Plan>* plan);

// The same in parts: part i holds elements [begins[i], begins[i + 1]). begins ascends from 0.
Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements,
                const std::vector<int64_t>& begins, std::shared_ptr<const Plan>* plan);

// The same with memory in an order of the caller.
Status MakePlan(const schedule::Schedule& schedule, int64_t chunk_elements, const Locate& locate,
                std::shared_ptr<const Plan>* plan);

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_PLAN_H_
