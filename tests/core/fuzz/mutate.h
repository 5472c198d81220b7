// Inputs made from others, as a stranger might change them: a function of the number alone.
#ifndef TESTS_CORE_FUZZ_MUTATE_H_
#define TESTS_CORE_FUZZ_MUTATE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_strategies::fuzz {

// seeds: one at least. The first numbers are the seeds themselves.
std::string MutatedInput(const std::vector<std::string>& seeds, uint64_t seed, uint64_t number);

}  // namespace tf_strategies::fuzz

#endif  // TESTS_CORE_FUZZ_MUTATE_H_
