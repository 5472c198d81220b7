// Adds the length and a checksum to the address of a transport, so that a damaged address is refused before it is
// parsed. This detects accidents, but not attacks: an attacker can also change the checksum.
#ifndef OPS_TRANSPORT_SEALED_ADDRESS_H_
#define OPS_TRANSPORT_SEALED_ADDRESS_H_

#include <string>

#include "ops/base/status.h"

namespace tf_strategies {

// Returns the address with its length and checksum.
std::string SealAddress(const std::string& address);

// Checks and removes the length and the checksum. Returns kInvalidArgument, with the reason, if the address was cut,
// extended or changed.
Status UnsealAddress(const std::string& sealed, std::string* address);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_SEALED_ADDRESS_H_
