#include "ops/analysis/verify.h"

#include "ops/analysis/contributions.h"
#include "ops/analysis/symbolic_run.h"
#include "ops/base/check.h"
#include "ops/schedule/algorithms.h"

namespace tf_strategies::schedule {
namespace {

template <typename Set>
Status RunAndCheck(const GroupProgram& program, const BuildRank& build,
                   const std::vector<Expected>& expected) {
  SymbolicRun<Set> run(program, build, expected);
  TFS_RETURN_IF_ERROR(run.Run());
  for (const Expected& part : expected) TFS_RETURN_IF_ERROR(run.CheckResult(part));
  return Status::Ok();
}

Status Verify(int size, int64_t count, const BuildRank& build, const std::vector<Expected>& expected) {
  GroupProgram program;
  TFS_RETURN_IF_ERROR(PackGroup(size, count, build, &program));
  if (size <= 64) return RunAndCheck<ExactSet<1>>(program, build, expected);
  if (size <= 256) return RunAndCheck<ExactSet<4>>(program, build, expected);
  return RunAndCheck<Fingerprint>(program, build, expected);
}

}  // namespace

Status VerifyAllReduce(int size, int64_t count, const BuildRank& build) {
  return Verify(size, count, build, {{{0, count}, 0, size}});
}

Status VerifyBroadcast(int size, int64_t count, int root, const BuildRank& build) {
  return Verify(size, count, build, {{{0, count}, root, 1}});
}

Status VerifyAllGather(int size, const std::vector<int64_t>& offsets, const BuildRank& build) {
  TFS_CHECK_EQ(offsets.size(), static_cast<size_t>(size) + 1);
  std::vector<Expected> expected;
  for (int rank = 0; rank < size; ++rank) expected.push_back({{offsets[rank], offsets[rank + 1]}, rank, 1});
  return Verify(size, offsets.back(), build, expected);
}

Status VerifyAllToAll(int size, int64_t slot, const std::vector<std::vector<int64_t>>& lengths,
                      const BuildRank& build) {
  TFS_CHECK_EQ(lengths.size(), static_cast<size_t>(size));
  std::vector<Expected> expected;
  for (int from = 0; from < size; ++from) {
    TFS_CHECK_EQ(lengths[from].size(), static_cast<size_t>(size));
    for (int to = 0; to < size; ++to)
      expected.push_back({AllToAllSegment(size, from, to, slot, lengths[from][to]), from, 1, to});
  }
  return Verify(size, size * slot * size, build, expected);
}

}  // namespace tf_strategies::schedule
