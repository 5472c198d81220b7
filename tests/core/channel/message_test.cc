// What travels between the ends: each message comes out as it went in, and whatever else comes is refused.

#include "ops/channel/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tf_strategies::channel {
namespace {

Message TensorMessage() {
  Message message;
  message.kind = MessageKind::kTensor;
  message.id = {0xFFFFFFFF, std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()};
  message.info = {9, {2, 1 << 17, 1}, 1 << 20};
  message.payload = kPayloads - 1;
  return message;
}

Message Copy(const Message& message) {
  const std::string encoded = Encode(message);
  EXPECT_LE(encoded.size(), MostMessageBytes());
  Message decoded;
  const Status status = Decode(encoded.data(), encoded.size(), &decoded);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return decoded;
}

TEST(Message, ATensorThatFollowsKeepsEveryField) {
  const Message sent = TensorMessage(), came = Copy(sent);
  EXPECT_EQ(came.kind, MessageKind::kTensor);
  EXPECT_EQ(came.id.key, sent.id.key);
  EXPECT_EQ(came.id.step, sent.id.step);
  EXPECT_EQ(came.id.iteration, sent.id.iteration);
  EXPECT_EQ(came.info.dtype, sent.info.dtype);
  EXPECT_EQ(came.info.dims, sent.info.dims);
  EXPECT_EQ(came.info.bytes, sent.info.bytes);
  EXPECT_EQ(came.payload, sent.payload);
  EXPECT_FALSE(came.carries_bytes);
}

TEST(Message, ASmallTensorBringsItsBytes) {
  for (size_t bytes : {size_t{0}, size_t{1}, kInlineBytes}) {
    Message sent = TensorMessage();
    sent.info.dims.assign(kMostDims, 1);
    sent.info.dims.back() = static_cast<int64_t>(bytes);
    sent.info.bytes = bytes;
    sent.carries_bytes = true;
    sent.body = std::string(bytes, '\7');
    const Message came = Copy(sent);
    EXPECT_TRUE(came.carries_bytes);
    EXPECT_EQ(came.body, sent.body);
    EXPECT_EQ(came.info.dims, sent.info.dims);
  }
}

TEST(Message, AnEndBringsItsReasonAndALongOneIsCut) {
  Message sent;
  sent.kind = MessageKind::kEnd;
  sent.code = Code::kUnavailable;
  sent.body = std::string(5000, 'x');
  const Message came = Copy(sent);
  EXPECT_EQ(came.code, Code::kUnavailable);
  EXPECT_EQ(came.body, std::string(kMostText, 'x'));
}

std::string RefusalOf(const std::string& encoded) {
  Message message;
  const Status status = Decode(encoded.data(), encoded.size(), &message);
  EXPECT_EQ(status.code(), Code::kMismatch);
  return status.message();
}

template <typename T>
std::string Changed(const Message& message, size_t offset, T value) {
  std::string encoded = Encode(message);
  std::memcpy(&encoded[offset], &value, sizeof(value));
  return encoded;
}

TEST(Message, EveryFieldThatMakesNoSenseIsRefused) {
  const Message tensor = TensorMessage();
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(RefusalOf(""), "0 bytes"));
  EXPECT_TRUE(has(RefusalOf(Encode(tensor).substr(0, 55)), "55 bytes"));
  EXPECT_TRUE(has(RefusalOf(Encode(tensor) + "x"), "81 bytes instead of 80"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint32_t>(tensor, 0, 77)), "begins with 77"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint32_t>(tensor, 4, 9)), "kind 9"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint32_t>(tensor, 12, kPayloads + 1)), "payload 268435457"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint64_t>(tensor, 32, 0)), "0 bytes of a tensor of 0"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint32_t>(tensor, 44, 255)), "255 dimensions"));
  EXPECT_TRUE(has(RefusalOf(Changed<uint64_t>(tensor, 48, ~uint64_t{0})), "a body of 18446744073709551615"));
  EXPECT_TRUE(has(RefusalOf(Changed<int64_t>(tensor, 56, -3)), "a dimension of -3"));
  Message end;
  end.kind = MessageKind::kEnd;
  EXPECT_TRUE(has(RefusalOf(Encode(end)), "code 0"));
  end.code = Code::kAborted;
  const std::string long_text(kMostText + 1, 'x');
  EXPECT_TRUE(
      has(RefusalOf(Changed<uint64_t>(end, 48, long_text.size()) + long_text), "a text of 1025 bytes"));
}

TEST(Message, DimensionsThatDoNotFitTheBytesAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {kHuge}, {kHuge, kHuge}, {kHuge, kHuge, 0}, {0}, {3}, {1 << 15}, {1 << 21}}) {
    Message message = TensorMessage();
    message.info.dims = dims;
    EXPECT_NE(RefusalOf(Encode(message)).find("dimensions that do not fit"), std::string::npos) << dims[0];
  }
}

// Bytes that another program sends: refused or understood, and never read beyond their end (AddressSanitizer sees that).
TEST(Message, RandomBytesDoNoHarm) {
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Message message = TensorMessage();
    if (round % 2) {
      message.carries_bytes = true;
      message.info.dims = {3, 1, 1};
      message.info.bytes = 3;
      message.body = "abc";
    }
    std::string encoded = Encode(message);
    for (int i = 0; i < 3; ++i) encoded[random() % encoded.size()] = static_cast<char>(random());
    encoded.resize(random() % (encoded.size() + 1));
    std::vector<char> exact(encoded.begin(), encoded.end());
    refused += !Decode(exact.data(), exact.size(), &message).ok();
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tf_strategies::channel
