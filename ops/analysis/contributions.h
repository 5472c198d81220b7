// Sets of ranks, which the symbolic execution of verify.h uses in place of numbers.
#ifndef OPS_ANALYSIS_CONTRIBUTIONS_H_
#define OPS_ANALYSIS_CONTRIBUTIONS_H_

#include <cstdint>
#include <string>

namespace tf_strategies::schedule {

// An exact set, for ranks below 64 * kWords.
template <int kWords>
struct ExactSet {
  uint64_t words[kWords] = {};

  static ExactSet Of(int rank) {
    ExactSet set;
    set.words[rank / 64] = uint64_t{1} << (rank % 64);
    return set;
  }

  // Adds another set. Returns false if the sets share a rank.
  bool Add(const ExactSet& other) {
    uint64_t shared = 0;
    for (int i = 0; i < kWords; ++i) {
      shared |= words[i] & other.words[i];
      words[i] |= other.words[i];
    }
    return shared == 0;
  }

  // Describes the first difference from the expected set: "lacks rank 3", "must not have rank 3", or "" if the sets are
  // equal.
  std::string Departure(const ExactSet& expected) const {
    for (int rank = 0; rank < 64 * kWords; ++rank) {
      const uint64_t bit = uint64_t{1} << (rank % 64);
      if ((words[rank / 64] & bit) == (expected.words[rank / 64] & bit)) continue;
      return ((words[rank / 64] & bit) ? "must not have rank " : "lacks rank ") + std::to_string(rank);
    }
    return "";
  }

  bool operator==(const ExactSet& other) const {
    for (int i = 0; i < kWords; ++i) {
      if (words[i] != other.words[i]) return false;
    }
    return true;
  }
};

// A sum of pseudo-random numbers, one for each rank, for any number of ranks. Add does not detect a shared rank.
struct Fingerprint {
  uint64_t sum = 0;

  // The finaliser of the splitmix64 generator (Steele, Lea and Flood, 2014) at position rank + 1.
  static Fingerprint Of(int rank) {
    uint64_t z = (static_cast<uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return {z ^ (z >> 31)};
  }
  bool Add(const Fingerprint& other) {
    sum += other.sum;
    return true;
  }
  std::string Departure(const Fingerprint& expected) const {
    return *this == expected ? "" : "a contribution is missing, in excess or there twice";
  }
  bool operator==(const Fingerprint& other) const { return sum == other.sum; }
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_CONTRIBUTIONS_H_
