#include "tests/core/fuzz/mutate.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace tf_strategies::fuzz {
namespace {

constexpr size_t kMostBytes = 16 << 10;

class Mutation {
 public:
  Mutation(const std::vector<std::string>& seeds, uint64_t seed, uint64_t number)
      : seeds_(seeds), random_(seed * 0x9E3779B97F4A7C15u + number), bytes_(AnySeed()) {}

  std::string Run() {
    for (size_t left = 1 + Below(6); left > 0; --left) MutateOnce();
    if (bytes_.size() > kMostBytes) bytes_.resize(kMostBytes);
    return bytes_;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }
  const std::string& AnySeed() { return seeds_[Below(seeds_.size())]; }
  // The start of an input is its head, mostly: it is hit as often as all the rest.
  size_t AnyPlace() { return Below(Below(2) == 0 ? std::min<size_t>(bytes_.size(), 64) : bytes_.size()); }

  void MutateOnce() {
    switch (Below(9)) {
      case 0: return FlipBit();
      case 1: return SetByte();
      case 2:
      case 3: return SetExtreme();
      case 4: return Cut();
      case 5: return Splice();
      case 6: return Repeat();
      case 7: return Insert();
      default: return Erase();
    }
  }

  void FlipBit() {
    if (!bytes_.empty()) bytes_[AnyPlace()] ^= static_cast<char>(1 << Below(8));
  }

  void SetByte() {
    if (!bytes_.empty()) bytes_[AnyPlace()] = static_cast<char>(random_());
  }

  // A number at the edge of what its type, or what the input, can hold; of 1, 2, 4 or 8 bytes.
  void SetExtreme() {
    const size_t width = size_t{1} << Below(4);
    if (bytes_.size() < width) return;
    const uint64_t edges[] = {0,
                              1,
                              0x7F,
                              0x80,
                              0xFF,
                              0x7FFF,
                              0x8000,
                              0xFFFF,
                              0x10000,
                              0x7FFFFFFF,
                              0x80000000,
                              0xFFFFFFFF,
                              uint64_t{1} << 40,
                              uint64_t{1} << 48,
                              INT64_MAX,
                              uint64_t{1} << 63,
                              UINT64_MAX,
                              bytes_.size()};
    const uint64_t near = edges[Below(sizeof(edges) / sizeof(edges[0]))] + Below(3) - 1;
    const size_t at = std::min(AnyPlace(), bytes_.size() - width) / width * width;
    std::memcpy(&bytes_[at], &near, width);
  }

  void Cut() { bytes_.resize(Below(bytes_.size() + 1)); }

  // The start of this one and the end of another.
  void Splice() {
    const std::string& other = AnySeed();
    bytes_ = bytes_.substr(0, Below(bytes_.size() + 1)) + other.substr(Below(other.size() + 1));
  }

  void Repeat() {
    const size_t at = AnyPlace();
    const std::string part = bytes_.substr(at, 1 + Below(64));
    for (size_t times = 1 + Below(4); times > 0 && bytes_.size() < kMostBytes; --times)
      bytes_.insert(at, part);
  }

  void Insert() {
    std::string part(1 + Below(16), '\0');
    for (char& each : part) each = static_cast<char>(random_());
    bytes_.insert(Below(bytes_.size() + 1), part);
  }

  void Erase() { bytes_.erase(AnyPlace(), 1 + Below(32)); }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
  std::string bytes_;
};

}  // namespace

std::string MutatedInput(const std::vector<std::string>& seeds, uint64_t seed, uint64_t number) {
  if (number < seeds.size()) return seeds[number];
  return Mutation(seeds, seed, number).Run();
}

}  // namespace tf_strategies::fuzz
