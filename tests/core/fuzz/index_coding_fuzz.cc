// Indices of a compressed gradient: those that are read are ascending and in range, written again they take no more bytes and are
// read as the same, and nothing is written beyond their place.
//
// Input: the coding (1 byte), the number of indices (2), the number of elements (8), the bytes.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/compress/index_coding.h"
#include "ops/compress/message.h"
#include "tests/core/fuzz/input.h"
#include "tests/core/fuzz/place.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {
namespace {

std::string SeedOf(const std::vector<int64_t>& indices, int64_t count) {
  std::vector<uint8_t> bytes;
  const auto k = static_cast<int64_t>(indices.size());
  const compress::IndexCoding coding = compress::AppendIndices(indices.data(), k, count, &bytes);
  return Script()
      .Put(static_cast<uint8_t>(coding))
      .Put(static_cast<uint16_t>(k))
      .Put(count)
      .PutBytes({bytes.begin(), bytes.end()})
      .bytes();
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<int64_t> even, sparse;
  for (int64_t i = 0; i < 300; ++i) even.push_back(2 * i);
  for (int64_t i = 0; i < 300; ++i) sparse.push_back(i * i * 1000003);
  return {SeedOf({}, 0),
          SeedOf({0}, 1),
          SeedOf({0, 7, 8}, 9),
          SeedOf(even, 600),
          SeedOf(sparse, compress::kMaxCount),
          SeedOf({compress::kMaxCount - 1}, compress::kMaxCount)};
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tf_strategies;
  fuzz::Input input(data, size);
  const auto coding = static_cast<compress::IndexCoding>(input.Take<uint8_t>());
  const int64_t k = input.Take<uint16_t>();
  const auto count = static_cast<int64_t>(input.Take<uint64_t>() % (compress::kMaxCount + 1));
  const std::string rest = input.TakeRest();
  const std::vector<uint8_t> bytes(rest.begin(), rest.end());
  fuzz::Place place(static_cast<size_t>(k) * sizeof(int64_t));
  int64_t used = -1;
  const std::string wrong = compress::ReadIndices(coding, bytes.data(), static_cast<int64_t>(bytes.size()), k,
                                                  count, reinterpret_cast<int64_t*>(place.data()), &used);
  place.CheckUntouchedBehind(place.size());
  if (!wrong.empty()) return 0;
  TFS_CHECK_GE(used, 0);
  TFS_CHECK_LE(used, static_cast<int64_t>(bytes.size()));
  std::vector<int64_t> indices(static_cast<size_t>(k)), again(static_cast<size_t>(k));
  if (k > 0) std::memcpy(indices.data(), place.data(), place.size());
  for (size_t i = 0; i < indices.size(); ++i) TFS_CHECK_GT(indices[i], i == 0 ? -1 : indices[i - 1]);
  if (k > 0) TFS_CHECK_LT(indices.back(), count);
  std::vector<uint8_t> written;
  const compress::IndexCoding shorter = compress::AppendIndices(indices.data(), k, count, &written);
  const auto length = static_cast<int64_t>(written.size());
  TFS_CHECK_LE(length, used);
  TFS_CHECK(compress::ReadIndices(shorter, written.data(), length, k, count, again.data(), &used).empty());
  TFS_CHECK_EQ(used, length);
  TFS_CHECK(again == indices);
  return 0;
}
