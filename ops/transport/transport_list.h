// A value of UCX_TLS, as far as its meaning matters here: "" or "all", "tcp,self", "^sysv".
#ifndef OPS_TRANSPORT_TRANSPORT_LIST_H_
#define OPS_TRANSPORT_TRANSPORT_LIST_H_

#include <set>
#include <string>

namespace tf_strategies {

class TransportList {
 public:
  explicit TransportList(const std::string& tls);

  bool SharesMemory() const;  // whether messages between processes of a host may go through shared memory
  bool HasTcp() const;
  bool HasSelf() const;  // whether what a process sends to itself takes a way of its own

 private:
  bool NamesOneOf(const std::set<std::string>& names) const;

  bool excludes_ = false;  // everything but the names
  std::set<std::string> names_;
};

}  // namespace tf_strategies

#endif  // OPS_TRANSPORT_TRANSPORT_LIST_H_
