// Verifies the schedules of a collective by symbolic execution of all ranks, without moving data.
//
// Each element of each rank holds the set of the ranks whose contributions it contains. These properties are checked:
//
// - The schedules fulfil the contract of step.h.
// - Sends and receptions match: the i-th send from a to b and the i-th reception of b from a both exist, and have the
//   same range.
// - There is no deadlock, even if a rank starts a step only after all actions of the previous step, including sends, are
//   matched. (An executor that overlaps steps or buffers sends waits for less.)
// - No addition counts a contribution twice.
// - Every rank has the right result at the end.
//
// Up to 256 ranks the sets are exact. For more ranks, a set is the sum modulo 2^64 of one random number for each rank.
// Then a wrong schedule passes with a probability of 2^-64 for each element, and a contribution that is counted twice is
// detected only at the end. Adjacent elements that all schedules treat alike are run as one.
//
// The functions return kInvalidArgument with a message that names rank, step and action. They need 8 bytes of memory for
// each action of all ranks, and 8 bytes (8 to 32 if exact) for each rank and each such group of elements.
#ifndef OPS_ANALYSIS_VERIFY_H_
#define OPS_ANALYSIS_VERIFY_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/group_program.h"
#include "ops/base/status.h"

namespace tf_strategies::schedule {

// Verifies that every rank ends with every rank's contribution once in every element.
Status VerifyAllReduce(int size, int64_t count, const BuildRank& build);

// Verifies that every rank ends with only the root's contribution.
Status VerifyBroadcast(int size, int64_t count, int root, const BuildRank& build);

// Verifies that every rank ends with only rank r's contribution in elements [offsets[r], offsets[r+1]).
Status VerifyAllGather(int size, const std::vector<int64_t>& offsets, const BuildRank& build);

// Verifies that rank j ends with only rank i's contribution in the lengths[i][j] elements of the slot from i to j.
Status VerifyAllToAll(int size, int64_t slot, const std::vector<std::vector<int64_t>>& lengths,
                      const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_VERIFY_H_
