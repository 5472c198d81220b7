#include "ops/channel/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace tf_strategies::channel {
namespace {

constexpr uintptr_t kPage = 2 << 20;
constexpr size_t kWorthwhile = 2 * kPage;  // contains an aligned huge page at any address

}  // namespace

void PreferHugePages(void* data, size_t bytes) {
  if (bytes < kWorthwhile) return;
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + bytes) / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace tf_strategies::channel
