#include "ops/transport/transport_list.h"

#include <gtest/gtest.h>

namespace tf_strategies {
namespace {

struct Case {
  const char* tls;
  bool shares_memory, has_tcp, has_self;
};

TEST(TransportList, KnowsWhatAValueOfUcxTlsMeans) {
  for (const Case& each : {
           Case{"", true, true, true},
           Case{"all", true, true, true},
           Case{"tcp,self", false, true, true},
           Case{"self,tcp", false, true, true},
           Case{"tcp,sm,self", true, true, true},
           Case{"sm,self", true, false, true},
           Case{"posix,cma,self", true, false, true},
           Case{"rc,self", false, false, true},
           Case{"sm", true, false, false},
           Case{"^self", true, true, false},
           Case{"^sysv", true, true, true},
           Case{"^posix,sysv", false, true, true},
           Case{"^sm", false, true, true},
           Case{"^tcp", true, false, true},
           Case{"^tcp,shm", false, false, true},
       }) {
    const TransportList list(each.tls);
    EXPECT_EQ(list.SharesMemory(), each.shares_memory) << each.tls;
    EXPECT_EQ(list.HasTcp(), each.has_tcp) << each.tls;
    EXPECT_EQ(list.HasSelf(), each.has_self) << each.tls;
  }
}

}  // namespace
}  // namespace tf_strategies
