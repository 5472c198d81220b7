// The address of a transport as it travels: with its length and a checksum, so that a damaged one is refused before it is parsed.
// This finds accidents; whoever can change an address can also change its checksum.
#ifndef OPS_TRANSPORT_SEALED_ADDRESS_H_
#define OPS_TRANSPORT_SEALED_ADDRESS_H_

#include <string>

#include "ops/base/status.h"

namespace tf_strategies {

std::string SealAddress(const std::string& address);

// kInvalidArgument, with the reason, if it was cut, extended or changed.
Status UnsealAddress(const std::string& sealed, std::string* address);

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_SEALED_ADDRESS_H_
