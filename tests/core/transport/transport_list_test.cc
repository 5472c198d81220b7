#include "ops/transport/transport_list.h"

#include <gtest/gtest.h>

namespace tf_strategies {
namespace {

struct Case {
  const char* tls;
  bool shares_memory, has_tcp;
};

TEST(TransportList, KnowsWhatAValueOfUcxTlsMeans) {
  for (const Case& each : {
           Case{"", true, true},
           Case{"all", true, true},
           Case{"tcp,self", false, true},
           Case{"self,tcp", false, true},
           Case{"tcp,sm,self", true, true},
           Case{"sm,self", true, false},
           Case{"posix,cma,self", true, false},
           Case{"rc,self", false, false},
           Case{"^sysv", true, true},
           Case{"^posix,sysv", false, true},
           Case{"^sm", false, true},
           Case{"^tcp", true, false},
           Case{"^tcp,shm", false, false},
       }) {
    const TransportList list(each.tls);
    EXPECT_EQ(list.SharesMemory(), each.shares_memory) << each.tls;
    EXPECT_EQ(list.HasTcp(), each.has_tcp) << each.tls;
  }
}

}  // namespace
}  // namespace tf_strategies
