#include "ops/compress/entries.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "ops/compress/index_coding.h"
#include "ops/compress/message.h"

namespace tf_strategies::compress {
namespace {

constexpr int64_t kPartElements = 65536;  // their sums fit the second-level cache

int64_t Parts(int64_t count) { return (count + kPartElements - 1) / kPartElements; }

Status CheckIndices(const int64_t* indices, int64_t k, int64_t count) {
  for (int64_t i = 0; i < k; ++i) {
    if (indices[i] < 0 || indices[i] >= count) {
      return InvalidArgument("indices must be between 0 and count - 1, " + std::to_string(count - 1) +
                             "; indices[" + std::to_string(i) + "] is " + std::to_string(indices[i]));
    }
    if (i > 0 && indices[i] <= indices[i - 1]) {
      return InvalidArgument("indices must be strictly ascending; indices[" + std::to_string(i) + "] is " +
                             std::to_string(indices[i]) + ", after " + std::to_string(indices[i - 1]));
    }
  }
  return Status::Ok();
}

Status CheckOffsets(const int64_t* offsets, int64_t regions) {
  for (int64_t r = 0; r <= regions; ++r) {
    if (r == 0 ? offsets[0] == 0 : offsets[r] >= offsets[r - 1]) continue;
    return InvalidArgument("offsets must be non-decreasing from 0; offsets[" + std::to_string(r) + "] is " +
                           std::to_string(offsets[r]));
  }
  return CheckCount(offsets[regions]);
}

Status Read(const Message& message, Selection* entries) {
  const auto format = static_cast<ValueFormat>(message.header.form & 0xF);
  const auto coding = static_cast<IndexCoding>(message.header.form >> 4);
  const int64_t k = message.header.entries;
  if (format > ValueFormat::kInt8) {
    return Damaged(
        message, "has values in format " + std::to_string(static_cast<int>(format)) + ", which is not known");
  }
  if (ValueBytes(format, k) > message.body_bytes) {  // before memory is taken for k entries
    return Damaged(message, "should have " + std::to_string(ValueBytes(format, k)) + " bytes of values; " +
                                std::to_string(message.body_bytes) + " are left");
  }
  entries->indices.resize(k);
  entries->values.resize(k);
  int64_t used = 0;
  std::string wrong = ReadIndices(coding, message.body, message.body_bytes, k, message.header.count,
                                  entries->indices.data(), &used);
  if (!wrong.empty()) return Damaged(message, wrong);
  if (message.body_bytes - used != ValueBytes(format, k)) {
    return Damaged(message, "should have " + std::to_string(ValueBytes(format, k)) +
                                " bytes of values; it has " + std::to_string(message.body_bytes - used));
  }
  wrong = ReadValues(format, message.body + used, k, entries->values.data());
  return wrong.empty() ? Status::Ok() : Damaged(message, wrong);
}

// Calls add(index, value) for the entries in [begin, end), list after list.
template <typename Add>
void ForEntries(const std::vector<Selection>& lists, int64_t begin, int64_t end, const Add& add) {
  for (const Selection& list : lists) {
    const auto first = std::lower_bound(list.indices.begin(), list.indices.end(), begin);
    auto value = list.values.begin() + (first - list.indices.begin());
    for (auto index = first; index != list.indices.end() && *index < end; ++index) add(*index, *value++);
  }
}

void MergePart(const std::vector<Selection>& lists, int64_t begin, int64_t end, Selection* merged) {
  std::vector<uint64_t> present((end - begin + 63) / 64);
  const std::unique_ptr<float[]> sums(new float[end - begin]);
  ForEntries(lists, begin, end, [&](int64_t index, float value) {
    const int64_t at = index - begin;
    const uint64_t bit = uint64_t{1} << at % 64;
    sums[at] = ((present[at / 64] & bit) != 0 ? sums[at] : 0) + value;
    present[at / 64] |= bit;
  });
  for (size_t word = 0; word < present.size(); ++word) {
    for (uint64_t bits = present[word]; bits != 0; bits &= bits - 1) {
      const int64_t at = static_cast<int64_t>(word) * 64 + __builtin_ctzll(bits);
      merged->indices.push_back(begin + at);
      merged->values.push_back(sums[at]);
    }
  }
}

}  // namespace

Status EncodeEntries(const int64_t* indices, const float* values, int64_t k, int64_t count,
                     ValueFormat format, std::vector<uint8_t>* message, float* sent) {
  TFS_RETURN_IF_ERROR(CheckCount(count));
  if (k > count) {
    return InvalidArgument("there are " + std::to_string(k) + " indices, of " + std::to_string(count) +
                           " elements");
  }
  TFS_RETURN_IF_ERROR(CheckIndices(indices, k, count));
  Header header;
  message->assign(sizeof(header), 0);
  const IndexCoding coding = AppendIndices(indices, k, count, message);
  const size_t values_at = message->size();
  message->resize(values_at + ValueBytes(format, k));
  WriteValues(format, values, k, message->data() + values_at);
  header.kind = static_cast<uint8_t>(Kind::kEntries);
  header.form = static_cast<uint8_t>(static_cast<int>(format) | static_cast<int>(coding) << 4);
  header.count = count;
  header.entries = k;
  header.bytes = static_cast<int64_t>(message->size());
  std::memcpy(message->data(), &header, sizeof(header));
  const std::string wrong = ReadValues(format, message->data() + values_at, k, sent);
  return wrong.empty() ? Status::Ok() : Internal("values that were written cannot be read: " + wrong);
}

Status EncodeRegions(const int64_t* indices, const float* values, int64_t k, const int64_t* offsets,
                     int64_t regions, ValueFormat format, std::vector<uint8_t>* messages, int64_t* lengths,
                     float* sent) {
  TFS_RETURN_IF_ERROR(CheckOffsets(offsets, regions));
  TFS_RETURN_IF_ERROR(CheckIndices(indices, k, offsets[regions]));
  std::vector<uint8_t> message;
  std::vector<int64_t> places;
  for (int64_t r = 0, first = 0; r < regions; ++r) {
    const int64_t last = std::lower_bound(indices + first, indices + k, offsets[r + 1]) - indices;
    places.assign(indices + first, indices + last);
    for (int64_t& place : places) place -= offsets[r];
    TFS_RETURN_IF_ERROR(EncodeEntries(places.data(), values + first, last - first,
                                      offsets[r + 1] - offsets[r], format, &message, sent + first));
    messages->insert(messages->end(), message.begin(), message.end());
    lengths[r] = static_cast<int64_t>(message.size());
    first = last;
  }
  return Status::Ok();
}

Status ReadEntries(const uint8_t* bytes, int64_t size, int64_t count, std::vector<Selection>* lists,
                   const ParallelFor& parallel) {
  std::vector<Message> messages;
  TFS_RETURN_IF_ERROR(SplitMessages(bytes, size, Kind::kEntries, count, &messages));
  std::vector<Status> outcomes(messages.size());
  lists->resize(messages.size());
  parallel(static_cast<int64_t>(messages.size()),
           [&](int64_t i) { outcomes[i] = Read(messages[i], &(*lists)[i]); });
  for (const Status& outcome : outcomes) TFS_RETURN_IF_ERROR(outcome);
  return Status::Ok();
}

Status SumEntries(const uint8_t* bytes, int64_t size, int64_t count, float* sum,
                  const ParallelFor& parallel) {
  std::vector<Selection> lists;
  TFS_RETURN_IF_ERROR(ReadEntries(bytes, size, count, &lists, parallel));
  parallel(Parts(count), [&](int64_t part) {
    const int64_t begin = part * kPartElements, end = std::min(count, begin + kPartElements);
    std::fill(sum + begin, sum + end, 0.0f);
    ForEntries(lists, begin, end, [sum](int64_t index, float value) { sum[index] += value; });
  });
  return Status::Ok();
}

Status MergeEntries(const uint8_t* bytes, int64_t size, int64_t count, Selection* merged,
                    const ParallelFor& parallel) {
  std::vector<Selection> lists;
  TFS_RETURN_IF_ERROR(ReadEntries(bytes, size, count, &lists, parallel));
  std::vector<Selection> parts(Parts(count));
  parallel(Parts(count), [&](int64_t part) {
    const int64_t begin = part * kPartElements;
    MergePart(lists, begin, std::min(count, begin + kPartElements), &parts[part]);
  });
  *merged = {};
  for (const Selection& part : parts) {
    merged->indices.insert(merged->indices.end(), part.indices.begin(), part.indices.end());
    merged->values.insert(merged->values.end(), part.values.begin(), part.values.end());
  }
  return Status::Ok();
}

}  // namespace tf_strategies::compress
