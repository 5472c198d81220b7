// Huge pages for received tensors. The kernel allocates new memory page by page when it is first written. A tensor of
// 64 MB causes 16,384 page faults, which take longer than the copy itself. With huge pages it causes 32.
#ifndef OPS_CHANNEL_HUGE_PAGES_H_
#define OPS_CHANNEL_HUGE_PAGES_H_

#include <cstddef>

namespace tf_strategies::channel {

// Requests huge pages for memory that is about to be written, if it is large enough. This is only a hint.
void PreferHugePages(void* data, size_t bytes);

}  // namespace tf_strategies::channel

#endif  // OPS_CHANNEL_HUGE_PAGES_H_
