// Reusable memory for chunks that arrive before they can be reduced.
#ifndef OPS_COMMUNICATOR_SCRATCH_H_
#define OPS_COMMUNICATOR_SCRATCH_H_

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace tf_strategies {

// Not thread-safe.
class ScratchPool {
 public:
  using Block = std::unique_ptr<char[]>;

  // A block of at least `bytes` bytes, aligned for every dtype.
  Block Take(size_t bytes);
  void Return(Block block, size_t bytes);

 private:
  static size_t Rounded(size_t bytes);
  std::map<size_t, std::vector<Block>> free_;  // by rounded size
};

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_SCRATCH_H_
