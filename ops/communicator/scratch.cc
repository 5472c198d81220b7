#include "ops/communicator/scratch.h"

#include <new>
#include <utility>

namespace tf_strategies {

size_t ScratchPool::Rounded(size_t bytes) {
  size_t rounded = 64;
  while (rounded < bytes) rounded *= 2;
  return rounded;
}

ScratchPool::Block ScratchPool::Take(size_t bytes) {
  auto& blocks = free_[Rounded(bytes)];
  if (blocks.empty()) return Block(new (std::nothrow) char[Rounded(bytes)]);
  Block block = std::move(blocks.back());
  blocks.pop_back();
  return block;
}

void ScratchPool::Return(Block block, size_t bytes) { free_[Rounded(bytes)].push_back(std::move(block)); }

}  // namespace tf_strategies
