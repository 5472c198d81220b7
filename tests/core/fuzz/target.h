// A fuzz target: one parser of bytes that another process sends, and what must hold whatever the bytes are.
//
// Each <name>_fuzz.cc defines both functions. A property that does not hold is a TFS_CHECK. libFuzzer runs a target as it is; driver.cc
// runs one where there is no clang.
#ifndef TESTS_CORE_FUZZ_TARGET_H_
#define TESTS_CORE_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Returns 0. data: [size], in memory of exactly this size.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tf_strategies::fuzz {

// Inputs made of what the real sender writes: where mutations begin.
std::vector<std::string> Seeds();

}  // namespace tf_strategies::fuzz

#endif  // TESTS_CORE_FUZZ_TARGET_H_
