// Messages as other processes might send them: cut, lengthened, with wrong bytes.
#ifndef TESTS_CORE_COMPRESS_DAMAGE_H_
#define TESTS_CORE_COMPRESS_DAMAGE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace tf_strategies::compress {

using Bytes = std::vector<uint8_t>;

inline Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline void OnThreeThreads(int64_t count, const std::function<void(int64_t)>& task) {
  std::vector<std::thread> threads;
  for (int64_t first = 0; first < 3; ++first) {
    threads.emplace_back([&, first] {
      for (int64_t i = first; i < count; i += 3) task(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Calls read(bytes, size) with damaged copies of `message`, each in memory of exactly its size, for the address sanitizer to see
// what is read beyond it. Headers are hit as often as bodies.
inline void ForDamaged(const Bytes& message, int rounds,
                       const std::function<void(const uint8_t*, int64_t)>& read) {
  std::mt19937 generator(1);
  const auto below = [&](size_t limit) { return static_cast<size_t>(generator() % limit); };
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = message;
    for (size_t hits = below(4); hits > 0; --hits) {
      const size_t at = below(below(2) == 0 ? 48 : bytes.size());
      const uint8_t extremes[] = {0, 1, 127, 128, 255, static_cast<uint8_t>(generator())};
      bytes[at] = below(2) == 0 ? bytes[at] ^ static_cast<uint8_t>(1 << below(8)) : extremes[below(6)];
    }
    if (below(3) == 0) bytes.resize(below(bytes.size() + 1));
    if (below(8) == 0) bytes.resize(bytes.size() + below(40));
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), exact.get());
    read(exact.get(), static_cast<int64_t>(bytes.size()));
  }
}

}  // namespace tf_strategies::compress

#endif  // TESTS_CORE_COMPRESS_DAMAGE_H_
