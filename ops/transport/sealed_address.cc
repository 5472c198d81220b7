#include "ops/transport/sealed_address.h"

#include <cstdint>
#include <cstring>

namespace tf_strategies {
namespace {

struct Seal {
  uint64_t bytes;
  uint64_t checksum;
};

// FNV-1a.
uint64_t Checksum(const std::string& text) {
  uint64_t state = 14695981039346656037u;
  for (const char each : text) state = (state ^ static_cast<unsigned char>(each)) * 1099511628211u;
  return state;
}

}  // namespace

std::string SealAddress(const std::string& address) {
  const Seal seal{address.size(), Checksum(address)};
  return std::string(reinterpret_cast<const char*>(&seal), sizeof(seal)) + address;
}

Status UnsealAddress(const std::string& sealed, std::string* address) {
  Seal seal;
  if (sealed.size() < sizeof(seal)) {
    return InvalidArgument("it has " + std::to_string(sealed.size()) + " bytes, fewer than its header");
  }
  std::memcpy(&seal, sealed.data(), sizeof(seal));
  *address = sealed.substr(sizeof(seal));
  if (address->size() != seal.bytes) {
    return InvalidArgument("it has " + std::to_string(address->size()) + " bytes instead of " +
                           std::to_string(seal.bytes));
  }
  if (Checksum(*address) != seal.checksum) return InvalidArgument("its checksum is wrong");
  return Status::Ok();
}

}  // namespace tf_strategies
