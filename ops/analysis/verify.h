// Symbolic execution of all ranks of a collective: proves a schedule right without moving a byte.
//
// Every element of every rank holds the set of ranks whose contributions are in it. Checked are: the contract
// of step.h; pairing (the i-th send from a to b and the i-th reception of b from a exist both and name one
// range); freedom from deadlock in the strictest reading, in which a rank starts a step only when all actions
// of the one before are matched, a send included (an executor that overlaps steps or buffers sends waits for
// less); no addition counts a contribution twice; and what every rank holds at the end.
//
// Up to 256 ranks the sets are exact. Above, a set is the sum modulo 2^64 of one random number a rank: a
// wrong schedule passes with probability 2^-64 an element, and a contribution counted twice shows at the end
// only. Elements that no schedule tells apart are run as one.
//
// Returns kInvalidArgument with a message that names rank, step and action. Memory: 8 bytes an action of all
// ranks, and 8 bytes (8 to 32 when exact) for each rank and element that can be told apart.
#ifndef OPS_ANALYSIS_VERIFY_H_
#define OPS_ANALYSIS_VERIFY_H_

#include <cstdint>
#include <vector>

#include "ops/analysis/group_program.h"
#include "ops/base/status.h"

namespace tf_strategies::schedule {

// Every rank ends with every rank's contribution once in every element.
Status VerifyAllReduce(int size, int64_t count, const BuildRank& build);

// Every rank ends with the root's contribution alone.
Status VerifyBroadcast(int size, int64_t count, int root, const BuildRank& build);

// Every rank ends with rank r's contribution alone in elements [offsets[r], offsets[r+1]).
Status VerifyAllGather(int size, const std::vector<int64_t>& offsets, const BuildRank& build);

// Rank j ends with rank i's contribution alone in the lengths[i][j] elements of the slot from i to j.
Status VerifyAllToAll(int size, int64_t slot, const std::vector<std::vector<int64_t>>& lengths,
                      const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_VERIFY_H_
